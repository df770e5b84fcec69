# Defines zero::c: the functions of include/zero_c.h in a shared library that holds everything it needs, so that a C program needs no C++ compiler.

file(GLOB zero_c_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../src/c/*.cpp")
if(ZERO_SANITIZE OR NOT ZERO_OPTIMIZE_PROGRAMS)
    # The engines of all types in one unit: less than half of the time of six, on one core. A file with a path of its own, which ccache knows again in another build.
    list(FILTER zero_c_sources EXCLUDE REGEX "_(adamw|sgd)\\.cpp$")
    list(APPEND zero_c_sources "${CMAKE_CURRENT_LIST_DIR}/zero_c_engines.cpp")
endif()
add_library(zero_c SHARED ${zero_c_sources})
add_library(zero::c ALIAS zero_c)
target_include_directories(zero_c PUBLIC "$<BUILD_INTERFACE:${CMAKE_CURRENT_LIST_DIR}/../include>" "$<INSTALL_INTERFACE:include>")
target_link_libraries(zero_c PRIVATE zero_compiled $<BUILD_INTERFACE:zero_own_flags>)
if(TARGET zero_checkpoint_compiled)
    target_compile_definitions(zero_c PRIVATE ZERO_C_HAS_CHECKPOINT)
    target_link_libraries(zero_c PRIVATE zero_checkpoint_compiled)
endif()
if(TARGET zero_mpi_compiled) # with ZERO_MPI=OFF the library works with every MPI, or without one
    target_compile_definitions(zero_c PRIVATE ZERO_C_HAS_MPI)
    target_link_libraries(zero_c PRIVATE zero_mpi_compiled)
endif()
target_compile_options(zero_c PRIVATE $<$<NOT:$<BOOL:${ZERO_OPTIMIZE_PROGRAMS}>>:-O0>)
set_target_properties(zero_c PROPERTIES EXPORT_NAME c CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}" LINK_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/zero_c.map")
# Nothing but zero_c.h is exported, so that a program may use the C++ headers as well.
target_link_options(zero_c PRIVATE "LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/zero_c.map")
if(NOT ZERO_BUILD_C)
    set_target_properties(zero_c PROPERTIES EXCLUDE_FROM_ALL ON) # built only if a target links it
endif()

if(SKBUILD) # 'pip install': one file beside the modules of the package
    set_property(TARGET zero_c PROPERTY VERSION)
    set_property(TARGET zero_c PROPERTY SOVERSION)
    install(TARGETS zero_c LIBRARY DESTINATION zero COMPONENT python)
    return()
endif()

if(ZERO_INSTALL AND ZERO_BUILD_C AND BUILD_SHARED_LIBS AND NOT ZERO_BUILD_COMPILED)
    message(FATAL_ERROR "zero: with BUILD_SHARED_LIBS zero::c needs the library of zero::compiled beside it, and ZERO_BUILD_COMPILED is OFF. Set it to ON, or ZERO_BUILD_C to "
        "OFF; ZERO_HEADERS_ONLY=ON alone installs headers only.")
endif()
if(ZERO_INSTALL AND ZERO_BUILD_C)
    install(TARGETS zero_c EXPORT zeroCTargets)
    install(EXPORT zeroCTargets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
    install(FILES "${CMAKE_CURRENT_LIST_DIR}/../include/zero_c.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
    configure_file("${CMAKE_CURRENT_LIST_DIR}/zero-c.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/zero-c.pc" @ONLY)
    install(FILES "${CMAKE_CURRENT_BINARY_DIR}/zero-c.pc" DESTINATION "${zero_pkgconfig_dir}")
endif()
