# Installs the headers and a package, so that find_package(zero) gives zero::zero.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(zero_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/zero")
# Header-only: the package serves every architecture. Before 1.0 a minor version may break the interface.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/zeroConfigVersion.cmake" COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_package_config_file(cmake/zeroConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/zeroConfig.cmake" INSTALL_DESTINATION "${zero_package_dir}")

install(TARGETS zero EXPORT zeroTargets)
install(EXPORT zeroTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zeroConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/zeroConfigVersion.cmake" cmake/ZeroCudaTarget.cmake DESTINATION "${zero_package_dir}")
install(DIRECTORY include/zero DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
