# Defines zero::compiled: the same headers as zero::zero, but everything that depends on no policy is compiled once, into a library. A program links one of the
# two targets in all its units; their namespaces differ, so that a mixture does not link.

file(GLOB zero_compiled_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/../src/*.cpp")
list(FILTER zero_compiled_sources EXCLUDE REGEX "/(checkpoint|mpi|tier|torch)\\.cpp$") # see ZeroTier.cmake, ZeroCheckpoint.cmake and ZeroMpi.cmake
add_library(zero_compiled ${zero_compiled_sources})
add_library(zero::compiled ALIAS zero_compiled)
target_link_libraries(zero_compiled PUBLIC zero)
target_compile_definitions(zero_compiled PUBLIC ZERO_COMPILED)
set_target_properties(zero_compiled PROPERTIES OUTPUT_NAME zero EXPORT_NAME compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
    VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
if(NOT ZERO_BUILD_COMPILED)
    set_target_properties(zero_compiled PROPERTIES EXCLUDE_FROM_ALL ON) # built only if a target links it
endif()

# zero_compile_part(<part> <package> <base>...): defines zero::<part>_compiled from src/<part>.cpp, on top of the compiled libraries <base>. What the headers of zero::<part>
# need stays out of its interface. It is installed with zero<package>Targets.
function(zero_compile_part part package)
    set(target zero_${part}_compiled)
    add_library(${target} STATIC "${PROJECT_SOURCE_DIR}/src/${part}.cpp")
    add_library(zero::${part}_compiled ALIAS ${target})
    target_link_libraries(${target} PUBLIC ${ARGN} PRIVATE $<BUILD_INTERFACE:zero_${part}> $<BUILD_INTERFACE:zero_own_flags>)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME zero_${part} EXPORT_NAME ${part}_compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
    if(NOT ZERO_BUILD_COMPILED)
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    elseif(ZERO_INSTALL)
        install(TARGETS ${target} EXPORT zero${package}Targets)
        install(EXPORT zero${package}Targets NAMESPACE zero:: DESTINATION "${zero_package_dir}")
    endif()
endfunction()
