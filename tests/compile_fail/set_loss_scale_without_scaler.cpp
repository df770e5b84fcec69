// expect: zero: set_loss_scale() needs a loss scaler, and this stage has none; add zero::StaticLossScaler or zero::DynamicLossScaler.
// nvcc
#include "stage.hpp"

void override_scale(zero::ZeroStage<2>& engine) {
    engine.set_loss_scale(128.0F);
}

int main() {}
