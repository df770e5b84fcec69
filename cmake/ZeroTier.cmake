# Looks for xxHash, a header, with which a tier checks what it reads. Defines zero::tier, for stages with Offload, and zero::tier_compiled: the same headers on top of
# zero::compiled, whose users need no xxHash.

find_path(ZERO_XXHASH_INCLUDE_DIR xxhash.h DOC "Folder of xxhash.h, for zero::tier and zero::checkpoint")
if(NOT ZERO_XXHASH_INCLUDE_DIR)
    message(STATUS "zero: offload is not built, because xxhash.h was not found (Debian and Ubuntu: the package 'libxxhash-dev')")
    return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/ZeroTierTarget.cmake")
zero_compile_part(tier Tier zero_compiled)
