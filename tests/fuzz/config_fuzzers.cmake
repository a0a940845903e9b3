set(config_sources
    src/config/calibration.cpp
    src/config/config.cpp
    src/config/entries.cpp
    src/config/extra_fields.cpp
    src/config/extra_reader.cpp
    src/config/fields.cpp
    src/config/guide.cpp
    src/config/json_reader.cpp
    src/config/layer_selector.cpp
    src/config/problems.cpp
    src/config/rules.cpp
    src/config/schedule.cpp
    src/config/schedule_matrix.cpp
    src/config/schedule_reader.cpp
    src/config/spec_reader.cpp
    src/config/to_json.cpp
    src/config/value.cpp
    src/core/backend_name.cpp
    src/core/text.cpp)

fovea_add_fuzzer(
  NAME config_json
  HARNESS config_json_fuzz.cpp
  SOURCES ${config_sources} src/platform/map_reader.cpp src/platform/model_data.cpp
  FAULT_FILE src/config/layer_selector.cpp
  FAULT_FIND "if (*last >= kMaxLayers) {"
  FAULT_REPLACE "if (*last < 0) {"
  MAX_LEN 1024)

fovea_add_fuzzer(
  NAME config_flags
  HARNESS config_flags_fuzz.cpp
  SOURCES ${config_sources}
  FAULT_FILE src/config/entries.cpp
  FAULT_FIND "role_end < path.size() && "
  FAULT_REPLACE ""
  MAX_LEN 512)
