#include <zero/mpi/detail/collectives.ipp>
#include <zero/mpi/detail/peers.ipp>
#include <zero/mpi/detail/session.ipp>
