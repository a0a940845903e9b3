# The command line program, build/fovea. Its folder adds the sources:
# target_sources(fovea_cli PRIVATE main.cpp ...)

add_executable(fovea_cli)
set_target_properties(fovea_cli PROPERTIES OUTPUT_NAME fovea RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
fovea_set_warnings(fovea_cli)
target_link_libraries(fovea_cli PRIVATE fovea_internal CLI11::CLI11 nlohmann_json::nlohmann_json)
