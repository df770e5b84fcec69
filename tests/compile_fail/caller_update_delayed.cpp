// expect: zero: an update of the caller runs inside step(), so it cannot be delayed; call step(learning_rate), or leave zero::DelayedUpdate out of Offload.
#include <zero/stage/offload.hpp>
#include <zero/zero.hpp>

using Stage =
    zero::ZeroStage<2, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state>,
                                     zero::DelayedUpdate>>;

void train(Stage& engine) {
    engine.step(0.1, [](auto const& slice) { (void)slice; });
}
