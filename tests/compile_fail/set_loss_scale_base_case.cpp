// compiles
// set_loss_scale_without_scaler.cpp with a scaler; and an explicit instantiation of an engine
// without one.
#include "stage.hpp"

void override_scale(zero::ZeroStage<2, zero::StaticLossScaler>& engine) {
    engine.set_loss_scale(128.0F);
}

template class zero::Engine<zero::detail::StageConfig<2>::EngineConfig>;

int main() {
    zero::ZeroStage<2, zero::StaticLossScaler>::Options const options{
        .loss_scaler = {.scale = 128.0F}};
    return options.loss_scaler.scale > 0.0F ? 0 : 1;
}
