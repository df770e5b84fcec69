#pragma once

// Configurations whose weights or gradients travel in codes. The oracle encodes and decodes what
// each rank sends, and adds in rank order. A pass reads weights that were decoded; shards of stage
// 3 and master weights keep every bit. It takes the codecs of the library, which have tests of
// their own. Adopted blocks that are not aligned are refused.

#include "driver.hpp"

#include <zero/stage/wire.hpp>

#include <cstddef>

namespace zero::test::oracle {

template <Code code, Errors errors, Code weights = Code::plain>
bool in_codes(Configuration& c) {
    c.code = code;
    c.errors = errors;
    c.weights = weights;
    c.beta = 0.25F * static_cast<float>(keyed(c.seed, c.index, 79) % 4);
    c.reset_every = 1 + keyed(c.seed, c.index, 80) % 5;
    c.predivide.reset();
    return c.memory != Memory::adopted || c.has_aligned_block;
}

/// Freezes about half of the parameters, but not the first.
template <Code code>
bool frozen_in_codes(Configuration& c) {
    c.frozen = code;
    bool is_first = true;
    bool has_frozen = false;
    for (std::size_t index = 0; index < c.shapes.size(); ++index) {
        Shape& shape = c.shapes[index];
        bool const stays =
            is_first || shape.tiles > 1 || keyed(c.seed, c.index, 84, index) % 2 == 0;
        is_first = is_first && (!shape.trainable || shape.elements == 0);
        shape.trainable = shape.trainable && stays;
        has_frozen = has_frozen || (!shape.trainable && shape.elements != 0);
    }
    return has_frozen && c.memory == Memory::owned;
}

} // namespace zero::test::oracle
