# Compiles the files of data/ into the library; src/platform/preset_data.hpp reads them.

# In the order in which `fovea devices --presets` lists them.
set(FOVEA_DEVICES h100 h200 b200 a100 l40s rtx4090 mi300x ascend910b cpu)
set(FOVEA_MODELS
    wan2.1-t2v-1.3b
    wan2.1-t2v-14b
    wan2.1-i2v-14b
    wan2.2-a14b
    wan2.2-ti2v-5b
    qwen-image
    z-image
    flashvsr)

# fovea_preset_files(OUT FOLDER NAME...): the files as C++ initialisers.
function(fovea_preset_files OUT FOLDER)
  set(rows "")
  foreach(name IN LISTS ARGN)
    set(path "data/${FOLDER}/${name}.json")
    file(READ "${PROJECT_SOURCE_DIR}/${path}" text)
    string(JSON stated ERROR_VARIABLE fault GET "${text}" name)
    if(fault OR NOT stated STREQUAL name)
      message(FATAL_ERROR "${path}: not JSON with the name ${name} (${fault})")
    endif()
    string(APPEND rows "    {\"${path}\", R\"json(${text})json\"},\n")
    set_property(
      DIRECTORY "${PROJECT_SOURCE_DIR}"
      APPEND
      PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${path}")
  endforeach()
  # A file that is in no list would be silently absent.
  file(GLOB found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/data/${FOLDER}/*")
  list(LENGTH found count)
  list(LENGTH ARGN listed)
  if(NOT count EQUAL listed)
    message(FATAL_ERROR "data/${FOLDER} holds ${count} files, cmake/PresetData.cmake lists ${listed}")
  endif()
  set(${OUT} "${rows}" PARENT_SCOPE)
endfunction()

fovea_preset_files(FOVEA_DEVICE_FILES devices ${FOVEA_DEVICES})
fovea_preset_files(FOVEA_MODEL_FILES models ${FOVEA_MODELS})
configure_file("${PROJECT_SOURCE_DIR}/cmake/preset_data.cpp.in"
               "${PROJECT_BINARY_DIR}/generated/preset_data.cpp" @ONLY)
target_sources(fovea_objects PRIVATE "${PROJECT_BINARY_DIR}/generated/preset_data.cpp")
