#pragma once

// Connects the worked example to the conformance suite. The page shows this text as well.

#include "policy/loss_scaler_conformance.hpp"
#include "policy/worked_example.hpp"

template <>
struct zero::test::LossScalerFixture<CautiousLossScaler> {
    static std::vector<CautiousLossScalerOptions> accepted() {
        return {{}, {.initial_scale = 8.0F, .patience = 2, .most_patience = 5}, {.patience = 1600}};
    }
    static std::vector<CautiousLossScalerOptions> refused() {
        return {{.initial_scale = 0.5F}, {.patience = 0}, {.most_patience = 99}};
    }
};
