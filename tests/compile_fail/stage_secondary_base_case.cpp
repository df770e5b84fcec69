// compiles
// The other cases of secondary copies differ from this one in one type only.
#include "stage.hpp"

#include <zero/comm/secondary.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

template class zero::Engine<zero::detail::config_of_t<zero::ZeroStage<3, Hosts>>>;

void run(Hosts& hosts) {
    train<zero::ZeroStage<3, Hosts>>(hosts);
}
