// compiles
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using States =
    zero::To<zero::FileTier, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Offload<States>>;
template class zero::Engine<zero::detail::config_of_t<Stage>>;
using Late = Stage::with<zero::Offload<States, zero::DelayedUpdate>>;
template class zero::Engine<zero::detail::config_of_t<Late>>;

int main() {}
