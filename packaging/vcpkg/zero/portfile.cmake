# An overlay port that takes the sources of its own checkout: vcpkg install zero --overlay-ports=<zero>/packaging/vcpkg

vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES compiled ZERO_BUILD_COMPILED)
if(NOT "compiled" IN_LIST FEATURES)
    set(VCPKG_BUILD_TYPE release) # headers only
endif()
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS ${features} -DZERO_BUILD_TESTS=OFF -DZERO_BUILD_BENCHMARKS=OFF -DZERO_BUILD_EXAMPLES=OFF -DZERO_CUDA=OFF -DZERO_CHECKPOINT=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/zero)
vcpkg_fixup_pkgconfig()
if("compiled" IN_LIST FEATURES)
    file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
endif()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
