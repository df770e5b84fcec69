// compiles
// The other cases of weights and gradients in codes differ from this one in a few types only.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/wire.hpp>

using Third = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks>>;
using Second = zero::ZeroStage<2, zero::Wire<zero::Int4Blocks, zero::Plain, zero::NoFeedback>,
                               zero::Parameters<zero::bfloat16>>;
using Gradients =
    zero::ZeroStage<1, zero::Wire<zero::Plain, zero::Int8Blocks>, zero::GradientReduction<>>;
using Adapters = zero::ZeroStage<3, zero::FrozenWeights<zero::Int4Blocks>>;
using Levels =
    zero::ZeroStage<2, zero::Wire<zero::Plain, zero::Level<zero::Plain, zero::Int8Blocks>>,
                    zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>>;

template class zero::Engine<zero::detail::config_of_t<Third>>;
template class zero::Engine<zero::detail::config_of_t<Adapters>>;
template class zero::Engine<zero::detail::config_of_t<Second>>;
template class zero::Engine<zero::detail::config_of_t<Gradients>>;
template class zero::Engine<zero::detail::config_of_t<Levels>>;

int main() {
    train<Third>(zero::LoopbackCommunicator::make_group(1).front());
    train<zero::ZeroStage<0, zero::Wire<>>>(zero::LoopbackCommunicator::make_group(1).front());
}
