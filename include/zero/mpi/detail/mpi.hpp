#pragma once

// Includes <mpi.h> for all headers of this folder, without the C++ bindings of MPI-2, which are
// deprecated and print warnings in Open MPI. A unit that needs them includes <mpi.h> first.
#pragma push_macro("OMPI_SKIP_MPICXX")
#pragma push_macro("MPICH_SKIP_MPICXX")
#undef OMPI_SKIP_MPICXX
#undef MPICH_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#pragma pop_macro("OMPI_SKIP_MPICXX")
#pragma pop_macro("MPICH_SKIP_MPICXX")
