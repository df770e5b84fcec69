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

# pkg-config finds the headers relative to its own file, so an installed copy may be moved.
set(zero_pkgconfig_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")
file(RELATIVE_PATH zero_pkgconfig_to_include "/${zero_pkgconfig_dir}" "/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    file(RELATIVE_PATH zero_pkgconfig_to_include "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
endif()
configure_file(cmake/zero.pc.in "${CMAKE_CURRENT_BINARY_DIR}/zero.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zero.pc" DESTINATION "${zero_pkgconfig_dir}")
