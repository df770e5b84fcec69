# Looks for the two libraries that checkpoints need, both used as headers only. Defines zero::checkpoint, and zero::checkpoint_compiled: the same headers on top of
# zero::compiled, whose users need neither library.

if(ZERO_CHECKPOINT STREQUAL "AUTO")
    set(zero_checkpoint_missing STATUS)
elseif(ZERO_CHECKPOINT)
    set(zero_checkpoint_missing FATAL_ERROR)
else()
    return()
endif()

if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json CONFIG QUIET GLOBAL)
endif()
if(NOT TARGET nlohmann_json::nlohmann_json OR NOT TARGET zero::tier)
    message(${zero_checkpoint_missing} "zero: checkpoints are not built, because nlohmann_json or xxhash.h was not found (Debian and Ubuntu: the packages "
        "'nlohmann-json3-dev' and 'libxxhash-dev')")
    return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/ZeroCheckpointTarget.cmake")
zero_compile_part(checkpoint Checkpoint zero_tier_compiled)
