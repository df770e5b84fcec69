# An overlay port that takes the sources of its own checkout: vcpkg install zero --overlay-ports=<zero>/packaging/vcpkg

if("compiled" IN_LIST FEATURES)
    set(options -DZERO_BUILD_TESTS=OFF -DZERO_BUILD_BENCHMARKS=OFF -DZERO_BUILD_EXAMPLES=OFF -DZERO_BUILD_C=OFF -DZERO_BUILD_PLAN=OFF -DZERO_CUDA=OFF -DZERO_CHECKPOINT=OFF)
else()
    set(options -DZERO_HEADERS_ONLY=ON)
    set(VCPKG_BUILD_TYPE release) # one configuration suffices
endif()
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${options})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/zero)
vcpkg_fixup_pkgconfig()
if("compiled" IN_LIST FEATURES)
    file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
endif()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
