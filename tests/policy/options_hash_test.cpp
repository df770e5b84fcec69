#include <zero/policy/has_compared_options.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>

#include "support/catch.hpp"

#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/policy/loss_scaler_presets.hpp>

#include <cstdint>
#include <vector>

namespace zero::test::options_hash_test {

namespace {

struct Numbers {
    int number = 3;
};

/// Adds its options.
struct Adds {
    using Options = Numbers;
    static void add_to(Hash& hash, Options const& options) { hash.add(options.number); }
};

struct AddsNothing {
    using Options = Numbers;
};
struct AddsAndReturns {
    using Options = Numbers;
    static int add_to(Hash& hash, Options const& options) { return hash.add(options.number), 1; }
};
struct AddsToAnObject {
    using Options = Numbers;
    void add_to(Hash& hash, Options const& options) const { hash.add(options.number); }
};
struct AddsOtherOptions {
    using Options = Numbers;
    static void add_to(Hash& hash, AdamWOptions const& options) { hash.add(options.beta1); }
};

/// True if the hash changes when one option differs from its default.
template <class P, class T>
bool tells(T P::Options::*member, T value) {
    typename P::Options options;
    options.*member = value;
    return zero::detail::hash_of_options<P>(options) != zero::detail::hash_of_options<P>({});
}

} // namespace

TEST_CASE("A policy adds its options by a static function that returns nothing") {
    STATIC_REQUIRE(HasComparedOptions<Adds>);
    STATIC_REQUIRE_FALSE(HasComparedOptions<AddsNothing>);
    STATIC_REQUIRE_FALSE(HasComparedOptions<AddsAndReturns>);
    STATIC_REQUIRE_FALSE(HasComparedOptions<AddsToAnObject>);
    STATIC_REQUIRE_FALSE(HasComparedOptions<AddsOtherOptions>);
    CHECK(zero::detail::hash_of_options<Adds>({}) == Hash().add(3).value());
    CHECK(tells<Adds>(&Numbers::number, 4));
    CHECK(zero::detail::hash_of_options<AddsNothing>({4}) == Hash().value());
}

TEST_CASE("Shipped policies hash each option that must be equal on all ranks") {
    CHECK(tells<AdamW>(&AdamWOptions::beta1, 0.5));
    CHECK(tells<AdamW>(&AdamWOptions::beta2, 0.5));
    CHECK(tells<AdamW>(&AdamWOptions::epsilon, 0.5));
    CHECK(tells<AdamW>(&AdamWOptions::weight_decay, 0.5));
    CHECK(tells<Sgd>(&SgdOptions::momentum, 0.5));
    CHECK(tells<Sgd>(&SgdOptions::weight_decay, 0.5));
    CHECK(tells<Sgd>(&SgdOptions::nesterov, true));
    CHECK(tells<StaticLossScaler>(&StaticLossScalerOptions::scale, 2.0F));
    CHECK_FALSE(tells<AdamW>(&AdamWOptions::beta1, 0.9));
    STATIC_REQUIRE_FALSE(HasComparedOptions<NoLossScaler>);
}

TEST_CASE("The hash of an optimizer's options begins with its name and has each option in order") {
    using zero::detail::hash_of_options;
    CHECK(hash_of_options<AdamW>({.beta1 = 0.5, .beta2 = 0.25, .epsilon = 2.0, .weight_decay = 4.0})
          == Hash().add("AdamW").add(0.5).add(0.25).add(2.0).add(4.0).value());
    CHECK(hash_of_options<Adam>({.beta1 = 0.5, .beta2 = 0.25, .epsilon = 2.0, .weight_decay = 4.0})
          == Hash().add("Adam").add(0.5).add(0.25).add(2.0).add(4.0).value());
    CHECK(hash_of_options<Lamb>({.beta1 = 0.5, .beta2 = 0.25, .epsilon = 2.0, .weight_decay = 4.0})
          == Hash().add("Lamb").add(0.5).add(0.25).add(2.0).add(4.0).value());
    CHECK(hash_of_options<Sgd>({.momentum = 0.5, .weight_decay = 4.0, .nesterov = true})
          == Hash().add("Sgd").add(0.5).add(4.0).add(true).value());
    CHECK(hash_of_options<Lion>({.beta1 = 0.5, .beta2 = 0.25, .weight_decay = 4.0})
          == Hash().add("Lion").add(0.5).add(0.25).add(4.0).value());
    CHECK(hash_of_options<Adagrad>({.epsilon = 2.0, .weight_decay = 4.0})
          == Hash().add("Adagrad").add(2.0).add(4.0).value());
}

TEST_CASE("Presets of the dynamic loss scaler differ from each other and from the defaults") {
    namespace presets = loss_scaler_presets;
    std::vector<std::uint64_t> hashes;
    for (auto const& options :
         {DynamicLossScalerOptions{}, presets::deepspeed(), presets::deepspeed(true),
          presets::pytorch(), presets::megatron(), presets::apex(), presets::apex(3)}) {
        hashes.push_back(zero::detail::hash_of_options<DynamicLossScaler>(options));
    }
    for (std::size_t one = 0; one < hashes.size(); ++one) {
        for (std::size_t other = 0; other < one; ++other) {
            CHECK(hashes[one] != hashes[other]);
        }
    }
}

} // namespace zero::test::options_hash_test
