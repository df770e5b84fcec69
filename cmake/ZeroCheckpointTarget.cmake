# Defines zero::checkpoint: zero::zero and what the definitions in zero/checkpoint/ include. The caller has found nlohmann_json::nlohmann_json, and defined
# zero::tier, whose checksums are used.

if(NOT TARGET zero::checkpoint)
    add_library(zero_checkpoint INTERFACE)
    add_library(zero::checkpoint ALIAS zero_checkpoint)
    target_link_libraries(zero_checkpoint INTERFACE zero::tier nlohmann_json::nlohmann_json)
endif()
