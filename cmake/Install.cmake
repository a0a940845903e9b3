# Headers, library, program, find_package(fovea) and pkg-config.

if(NOT FOVEA_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)

install(TARGETS fovea EXPORT fovea-targets COMPONENT library
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(EXISTS "${PROJECT_SOURCE_DIR}/include/fovea")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/fovea" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          COMPONENT library FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
endif()
if(TARGET fovea_cli)
  install(TARGETS fovea_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT library)

set(FOVEA_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/fovea")
install(EXPORT fovea-targets NAMESPACE fovea:: DESTINATION "${FOVEA_CMAKE_DIR}" COMPONENT library)
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/fovea-config.cmake.in" "${PROJECT_BINARY_DIR}/cmake/fovea-config.cmake"
  INSTALL_DESTINATION "${FOVEA_CMAKE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/fovea-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/fovea-config.cmake"
              "${PROJECT_BINARY_DIR}/cmake/fovea-config-version.cmake"
        DESTINATION "${FOVEA_CMAKE_DIR}" COMPONENT library)

# A static library names what it was linked with; a shared one carries it.
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE fovea_dl)
string(JOIN " " FOVEA_PC_STATIC -lstdc++ -lm ${fovea_dl} ${OpenMP_CXX_FLAGS} -pthread)
if(FOVEA_HAVE_CUDA)
  string(APPEND FOVEA_PC_STATIC " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt")
endif()
if(FOVEA_HAVE_MPI)
  string(JOIN " " mpi_libraries ${MPI_C_LIBRARIES})
  string(APPEND FOVEA_PC_STATIC " ${mpi_libraries}")
endif()
set(FOVEA_PC_LIBS "-lfovea")
if(NOT BUILD_SHARED_LIBS)
  string(APPEND FOVEA_PC_LIBS " ${FOVEA_PC_STATIC}")
endif()
# The prefix is found from the file's own place, so the installed tree can be moved.
file(RELATIVE_PATH FOVEA_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/fovea.pc.in" "${PROJECT_BINARY_DIR}/cmake/fovea.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cmake/fovea.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT library)
