# Defines zero::tier: zero::zero and what the definitions in zero/tier/ include. The caller has found ZERO_XXHASH_INCLUDE_DIR, the folder of xxhash.h.

if(NOT TARGET zero::tier)
    add_library(zero_tier INTERFACE)
    add_library(zero::tier ALIAS zero_tier)
    target_link_libraries(zero_tier INTERFACE zero::zero)
    target_include_directories(zero_tier SYSTEM INTERFACE "${ZERO_XXHASH_INCLUDE_DIR}")
endif()
