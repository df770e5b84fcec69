// compiles
// The other cases of secondary copies differ from this one in one type only.
#include "stage.hpp"

#include <zero/comm/secondary.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

void run(Hosts& hosts) {
    train<zero::ZeroStage<3, Hosts>>(hosts);
}
