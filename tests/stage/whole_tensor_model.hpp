#pragma once

#include "support/trained.hpp"

#include <zero/zero.hpp>

#include <vector>

namespace zero::test {

/// Returns the toy model with matrices: wide, tall, square, of one row and of one column. Biases
/// and the empty parameter are not matrices.
inline std::vector<ParameterSpec> whole_specs() {
    auto specs = toy_specs();
    specs[0].rows = 20; // 20 x 15
    specs[1].rows = 20; // 20 x 25
    specs[3].rows = 3;  // 3 x 43
    specs[4].rows = 40; // frozen
    specs[5].rows = 8;  // 8 x 8
    specs[7].rows = 1;  // 1 x 1
    specs.push_back({"row", 70, {3}, 0, true, 0, 1});
    specs.push_back({"column", 65, {4}, 1, true, 0, 65});
    return specs;
}

template <class Stage>
Trained trained_whole(int world, double learning_rate = 0.01, Storage storage = Storage::owned,
                      std::vector<ParameterSpec> const& specs = whole_specs()) {
    typename Stage::Options options;
    options.storage = storage;
    options.poison = true; // poisons the scratch memory as well
    return trained<Stage>(world, options, {.learning_rate = learning_rate, .specs = specs});
}

} // namespace zero::test
