# Installs the headers and a package, so that find_package(zero) gives zero::zero.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(zero_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/zero")
# Without the compiled library the package serves every architecture. Before 1.0 a minor version may break the interface.
set(zero_architecture ARCH_INDEPENDENT)
if(ZERO_BUILD_COMPILED)
    set(zero_architecture "")
endif()
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/zeroConfigVersion.cmake" COMPATIBILITY SameMinorVersion ${zero_architecture})
configure_package_config_file(cmake/zeroConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/zeroConfig.cmake" INSTALL_DESTINATION "${zero_package_dir}")

install(TARGETS zero EXPORT zeroTargets)
install(EXPORT zeroTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
if(ZERO_BUILD_COMPILED)
    install(TARGETS zero_compiled EXPORT zeroCompiledTargets)
    install(EXPORT zeroCompiledTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
endif()
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zeroConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/zeroConfigVersion.cmake" cmake/ZeroCudaTarget.cmake cmake/ZeroCheckpointTarget.cmake
    cmake/ZeroMpiTarget.cmake cmake/ZeroTorchTarget.cmake
    DESTINATION "${zero_package_dir}")
install(DIRECTORY include/zero DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.hpp" PATTERN "*.ipp" PATTERN "*.tpp" PATTERN "*.cuh")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

# pkg-config finds the headers relative to its own file, so an installed copy may be moved.
set(zero_pkgconfig_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")
file(RELATIVE_PATH zero_pkgconfig_to_include "/${zero_pkgconfig_dir}" "/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    file(RELATIVE_PATH zero_pkgconfig_to_include "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
endif()
configure_file(cmake/zero.pc.in "${CMAKE_CURRENT_BINARY_DIR}/zero.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zero.pc" DESTINATION "${zero_pkgconfig_dir}")
if(ZERO_BUILD_COMPILED OR ZERO_BUILD_C)
    file(RELATIVE_PATH zero_pkgconfig_to_lib "/${zero_pkgconfig_dir}" "/${CMAKE_INSTALL_LIBDIR}")
    if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
        file(RELATIVE_PATH zero_pkgconfig_to_lib "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_FULL_LIBDIR}")
    endif()
endif()
if(ZERO_BUILD_COMPILED)
    configure_file(cmake/zero-compiled.pc.in "${CMAKE_CURRENT_BINARY_DIR}/zero-compiled.pc" @ONLY)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zero-compiled.pc" DESTINATION "${zero_pkgconfig_dir}")
endif()
