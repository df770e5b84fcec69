#include <zero/mpi/detail/collectives.ipp>
#include <zero/mpi/detail/family.ipp>
#include <zero/mpi/detail/peers.ipp>
#include <zero/mpi/detail/peers_messages.ipp>
#include <zero/mpi/detail/require_success.ipp>
#include <zero/mpi/detail/session.ipp>
#include <zero/mpi/detail/start.ipp>
