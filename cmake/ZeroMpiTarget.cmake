# Defines zero::mpi: zero::zero and MPI. The caller has found MPI::MPI_CXX.

if(NOT TARGET zero::mpi)
    add_library(zero_mpi INTERFACE)
    add_library(zero::mpi ALIAS zero_mpi)
    target_link_libraries(zero_mpi INTERFACE zero::zero MPI::MPI_CXX)
endif()
