# Looks for xxHash, a header, with which a tier checks what it reads. Defines zero::tier, for stages with Offload, and zero::tier_compiled: the same headers on top of
# zero::compiled, whose users need no xxHash.

find_path(ZERO_XXHASH_INCLUDE_DIR xxhash.h DOC "Folder of xxhash.h, for zero::tier and zero::checkpoint")
if(NOT ZERO_XXHASH_INCLUDE_DIR)
    message(STATUS "zero: offload is not built, because xxhash.h was not found (Debian and Ubuntu: the package 'libxxhash-dev')")
    return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/ZeroTierTarget.cmake")

add_library(zero_tier_compiled STATIC "${CMAKE_CURRENT_LIST_DIR}/../src/tier.cpp")
add_library(zero::tier_compiled ALIAS zero_tier_compiled)
target_link_libraries(zero_tier_compiled PUBLIC zero_compiled PRIVATE $<BUILD_INTERFACE:zero_tier> $<BUILD_INTERFACE:zero_own_flags>)
set_target_properties(zero_tier_compiled PROPERTIES OUTPUT_NAME zero_tier EXPORT_NAME tier_compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
if(NOT ZERO_BUILD_COMPILED)
    set_target_properties(zero_tier_compiled PROPERTIES EXCLUDE_FROM_ALL ON)
endif()

if(ZERO_INSTALL AND ZERO_BUILD_COMPILED)
    install(TARGETS zero_tier_compiled EXPORT zeroTierTargets)
    install(EXPORT zeroTierTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
endif()
