// expect: growth_interval
// expect: StaticLossScaler
// A fixed scale does not grow: an option that would be ignored is not a member.
#include "stage.hpp"

int main() {
    zero::StaticLossScalerOptions const scale{.scale = 128.0F};
    zero::ZeroStage<2, zero::StaticLossScaler>::Options const options{
        .loss_scaler = {.scale = scale.scale, .growth_interval = 100}};
    return options.loss_scaler.scale > 0.0F ? 0 : 1;
}
