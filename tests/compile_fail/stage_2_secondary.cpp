// expect: zero::ZeroStage: zero::Secondary copies what the forward pass gathers, and below stage 3 nothing is gathered; use stage 3, or the communicator without zero::Secondary.
#include "stage.hpp"

#include <zero/comm/secondary.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

void run(Hosts& hosts) {
    train<zero::ZeroStage<2, Hosts>>(hosts);
}
