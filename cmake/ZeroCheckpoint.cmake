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

add_library(zero_checkpoint_compiled STATIC "${CMAKE_CURRENT_LIST_DIR}/../src/checkpoint.cpp")
add_library(zero::checkpoint_compiled ALIAS zero_checkpoint_compiled)
target_link_libraries(zero_checkpoint_compiled PUBLIC zero_tier_compiled PRIVATE $<BUILD_INTERFACE:zero_checkpoint> $<BUILD_INTERFACE:zero_own_flags>)
set_target_properties(zero_checkpoint_compiled PROPERTIES OUTPUT_NAME zero_checkpoint EXPORT_NAME checkpoint_compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
if(NOT ZERO_BUILD_COMPILED)
    set_target_properties(zero_checkpoint_compiled PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

if(ZERO_INSTALL AND ZERO_BUILD_COMPILED)
    install(TARGETS zero_checkpoint_compiled EXPORT zeroCheckpointTargets)
    install(EXPORT zeroCheckpointTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
endif()
