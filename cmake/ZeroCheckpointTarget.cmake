# Defines zero::checkpoint: zero::zero and what the definitions in zero/checkpoint/ include. The caller has found nlohmann_json::nlohmann_json, and the folder
# ZERO_XXHASH_INCLUDE_DIR of xxhash.h.

if(NOT TARGET zero::checkpoint)
    add_library(zero_checkpoint INTERFACE)
    add_library(zero::checkpoint ALIAS zero_checkpoint)
    target_link_libraries(zero_checkpoint INTERFACE zero::zero nlohmann_json::nlohmann_json)
    target_include_directories(zero_checkpoint SYSTEM INTERFACE "${ZERO_XXHASH_INCLUDE_DIR}")
endif()
