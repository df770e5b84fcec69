# Looks for MPI and defines zero::mpi, and zero::mpi_compiled: the same headers on top of zero::compiled. Without MPI everything else is built.

if(ZERO_MPI STREQUAL "AUTO")
    set(zero_mpi_missing STATUS)
elseif(ZERO_MPI)
    set(zero_mpi_missing FATAL_ERROR)
else()
    return()
endif()

set(MPI_CXX_SKIP_MPICXX TRUE) # the C interface alone
find_package(MPI 3 COMPONENTS CXX QUIET)
if(NOT MPI_CXX_FOUND) # the target exists even if nothing was found
    message(${zero_mpi_missing} "zero: the communicator over MPI is not built, because MPI was not found (Debian and Ubuntu: the packages 'libopenmpi-dev' and "
        "'openmpi-bin', or 'libmpich-dev' and 'mpich')")
    return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/ZeroMpiTarget.cmake")

add_library(zero_mpi_compiled STATIC "${CMAKE_CURRENT_LIST_DIR}/../src/mpi.cpp")
add_library(zero::mpi_compiled ALIAS zero_mpi_compiled)
target_link_libraries(zero_mpi_compiled PUBLIC zero_compiled MPI::MPI_CXX PRIVATE $<BUILD_INTERFACE:zero_own_flags>)
set_target_properties(zero_mpi_compiled PROPERTIES OUTPUT_NAME zero_mpi EXPORT_NAME mpi_compiled POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
set_target_properties(zero_mpi_compiled PROPERTIES EXCLUDE_FROM_ALL ON) # built if something links it; a package would fix one MPI

# How tests and benchmarks start processes. Root, as in a container, and more processes than cores: mpirun of Open MPI refuses both unless it is told. MPICH knows neither option nor needs it.
set(zero_mpi_launch "${MPIEXEC_EXECUTABLE}")
execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE mpi_version ERROR_QUIET)
if(mpi_version MATCHES "Open MPI|OpenRTE")
    list(APPEND zero_mpi_launch --allow-run-as-root --oversubscribe)
endif()
