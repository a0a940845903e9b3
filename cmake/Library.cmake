# The library's targets:
#   fovea_objects   every source, compiled once, hidden visibility; folders add to it with
#                   target_sources(fovea_objects PRIVATE file.cpp)
#   fovea           what users link (static or shared by BUILD_SHARED_LIBS); alias fovea::fovea
#   fovea_internal  a static library of the same objects with the internal headers, for the
#                   command line program and the tests

add_library(fovea_objects OBJECT)
add_library(fovea $<TARGET_OBJECTS:fovea_objects>)
add_library(fovea::fovea ALIAS fovea)
add_library(fovea_internal STATIC $<TARGET_OBJECTS:fovea_objects>)

set_target_properties(fovea_objects PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                                               POSITION_INDEPENDENT_CODE ON)
set_target_properties(fovea fovea_internal PROPERTIES LINKER_LANGUAGE CXX)
fovea_set_warnings(fovea_objects)

target_include_directories(fovea_objects PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                                 "${PROJECT_SOURCE_DIR}")
target_include_directories(fovea PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_include_directories(fovea_internal INTERFACE "${PROJECT_SOURCE_DIR}/include"
                                                    "${PROJECT_SOURCE_DIR}")
target_compile_features(fovea PUBLIC cxx_std_20)
target_compile_features(fovea_internal INTERFACE cxx_std_20)

# fovea_link(LIBRARY...): a private dependency of the library, for its objects and all its forms.
function(fovea_link)
  target_link_libraries(fovea_objects PRIVATE ${ARGN})
  target_link_libraries(fovea PRIVATE ${ARGN})
  target_link_libraries(fovea_internal PRIVATE ${ARGN})
endfunction()

fovea_link(OpenMP::OpenMP_CXX Threads::Threads ${CMAKE_DL_LIBS})
target_link_libraries(fovea_objects PRIVATE nlohmann_json::nlohmann_json)

# Before 1.0 a minor release may change the binary interface.
set_target_properties(
  fovea
  PROPERTIES VERSION ${PROJECT_VERSION}
             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
             LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
             ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
if(BUILD_SHARED_LIBS)
  # Template instantiations of the standard library stay inside.
  target_link_options(fovea PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
  set_target_properties(fovea PROPERTIES LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/exports.map")
  if(NOT FOVEA_SANITIZE)
    target_link_options(fovea PRIVATE "LINKER:--no-undefined")
  endif()
endif()

foreach(component IN ITEMS CUDA CUDNN NCCL MPI)
  set(definition FOVEA_HAVE_${component}=$<BOOL:${FOVEA_HAVE_${component}}>)
  target_compile_definitions(fovea_objects PRIVATE ${definition})
  target_compile_definitions(fovea_internal INTERFACE ${definition})
endforeach()
