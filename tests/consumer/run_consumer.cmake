# Configures, builds and runs a PROJECT that uses the library, LIBRARY (CMake targets) with COMPONENTS of the package or PACKAGE (of pkg-config), in one WAY; see CMakeLists.txt. OPTIONS are CMake's; targets in
# ABSENT must not exist.

if(NOT LIBRARY)
    set(LIBRARY zero::zero)
    set(PACKAGE zero)
endif()
separate_arguments(OPTIONS)
separate_arguments(ABSENT)
file(GLOB sources "${PROJECT}/*.cpp")
set(cmake_project "${PROJECT}")
if(NOT EXISTS "${cmake_project}/CMakeLists.txt")
    set(cmake_project "${CMAKE_CURRENT_LIST_DIR}/project")
endif()

file(REMOVE_RECURSE "${WORK}")
set(prefix "${WORK}/prefix")
if(WAY STREQUAL "find_package" OR WAY STREQUAL "pkg-config")
    execute_process(COMMAND "${CMAKE_COMMAND}" --install "${ZERO_BUILD}" --prefix "${prefix}" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endif()
set(consumer "${WORK}/build/consumer")
file(MAKE_DIRECTORY "${WORK}/build")
if(WAY STREQUAL "copied_folder") # the copied folder is all it needs
    file(COPY "${ROOT}/include/zero" DESTINATION "${WORK}/third_party")
    execute_process(COMMAND "${COMPILER}" -std=c++20 "-I${WORK}/third_party" ${sources} -pthread -o "${consumer}" COMMAND_ERROR_IS_FATAL ANY)
elseif(WAY STREQUAL "pkg-config")
    file(RENAME "${prefix}" "${prefix}-moved") # an installed copy can be moved
    set(ENV{PKG_CONFIG_PATH} "${prefix}-moved/share/pkgconfig")
    execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs "${PACKAGE} = ${VERSION}" OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    execute_process(COMMAND "${PKG_CONFIG}" --variable=libdir "${PACKAGE}" OUTPUT_VARIABLE libraries OUTPUT_STRIP_TRAILING_WHITESPACE)
    set(ENV{LD_LIBRARY_PATH} "${libraries}") # for a shared library
    execute_process(COMMAND "${COMPILER}" -std=c++20 ${sources} ${flags} -o "${consumer}" COMMAND_ERROR_IS_FATAL ANY)
else()
    # With the flags of the build that is tested, ccache has the objects of the library already.
    set(as_in_zero_build "")
    if(WAY STREQUAL "add_subdirectory" OR WAY STREQUAL "FetchContent")
        load_cache("${ZERO_BUILD}" READ_WITH_PREFIX zero_ CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS_RELEASE ZERO_OPTIMIZE_PROGRAMS ZERO_WARNINGS_AS_ERRORS)
        foreach(name IN ITEMS CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS_RELEASE ZERO_OPTIMIZE_PROGRAMS ZERO_WARNINGS_AS_ERRORS)
            list(APPEND as_in_zero_build "-D${name}=${zero_${name}}")
        endforeach()
    endif()
    execute_process(
        COMMAND "${CMAKE_COMMAND}" -S "${cmake_project}" -B "${WORK}/build" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DWAY=${WAY}" "-DZERO_ROOT_DIR=${ROOT}"
            ${as_in_zero_build} "-DCMAKE_PREFIX_PATH=${prefix}" "-DVERSION=${VERSION}" "-DLIBRARY=${LIBRARY}" "-DCOMPONENTS=${COMPONENTS}" "-DSOURCES=${sources}" "-DABSENT=${ABSENT}" ${OPTIONS}
        COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
endif()
execute_process(COMMAND "${consumer}" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(NOT output STREQUAL "zero ${VERSION}\n")
    message(FATAL_ERROR "the consumer printed '${output}', not 'zero ${VERSION}'")
endif()
