#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>

#include <limits>
#include <string>
#include <vector>

// `rebuild_buckets`: what the first step records, on which rank, and the buckets that follow from
// it.

namespace zero::test::rebuild_test {

namespace {

constexpr int world = 3;
using Order = std::vector<std::size_t>;
using Stage = ZeroStage<2, UnitBucketer>;

/// Returns the names of a layout's parameters in bucket order.
std::string buckets_of(FlatLayout const& layout) {
    std::string text;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            text += layout.parameter(piece.parameter).name + ' ';
        }
        text += "| ";
    }
    return text;
}

/// Runs one micro-step in which units become ready in this order. Other units are left to the end
/// of the micro-step.
template <class Engine>
void report_units(Engine& engine, Order const& order) {
    engine.begin_micro_step();
    auto const gradients = engine.gradients(order.front()); // zeros
    (void)gradients[engine.layout().unit_parameters(order.front()).front()];
    for (std::size_t const unit : order) {
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
}

constexpr char const* registered = "head.scale | third.empty third.weight | second.weight | "
                                   "first.bias first.weight | embedding | second.table | ";
constexpr char const* forwards =
    "first.bias first.weight | second.weight | third.empty third.weight | head.scale | embedding | "
    "second.table | "; // unit 4 completes both

/// Returns the layout of each rank after `train(engine, rank)`.
template <class Train>
std::vector<std::string> buckets_after(Train const& train) {
    return on_ranks<std::string>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.extra_leases = 2,
                      .rebuild_buckets = Stage::in_ready_order,
                      .leases_until_rebuild = 6});
        std::string const before = buckets_of(engine.layout());
        train(engine, communicator.rank());
        return (before == registered ? "" : "built as " + before) + buckets_of(engine.layout());
    });
}

using Texts = std::vector<std::string>;

} // namespace

TEST_CASE("After the first step buckets are filled in the order in which units became ready",
          "[stage][rebuild]") {
    CHECK(buckets_after([](Stage& engine, int rank) {
              (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, 2, 0.01, 0,
                             {0, 1, 2, 3, 4});
          })
          == Texts(world, forwards));
    CHECK(buckets_after([](Stage& engine, int rank) {
              (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, 2);
          })
          == Texts(world, registered));
    // The tied embedding is complete when both of its units, 0 and 4, are. The frozen table of unit
    // 2 is in no trainable bucket.
    CHECK(buckets_after([](Stage& engine, int rank) {
              (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, 1, 0.01, 0,
                             {4, 2, 0, 3, 1});
          })
          == Texts(world, "head.scale | second.weight | embedding | third.empty third.weight | "
                          "first.bias first.weight | second.table | "));
}

TEST_CASE("Rank 0 decides on the order, whatever the others did", "[stage][rebuild]") {
    CHECK(buckets_after([](Stage& engine, int rank) {
              (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, 1, 0.01, 0,
                             rank == 0   ? Order{0, 1, 2, 3, 4}
                             : rank == 1 ? Order{2, 4, 3, 0, 1}
                                         : Order{});
          })
          == Texts(world, forwards));
}

TEST_CASE("A unit counts where it first became ready in the step, and comes last if it never did",
          "[stage][rebuild]") {
    CHECK(buckets_after([](Stage& engine, int) {
              engine.begin_step();
              report_units(engine, {1});
              report_units(engine, {3, 2, 1, 0});
              (void)engine.step(0.01);
          })
          == Texts(world, "first.bias first.weight | third.empty third.weight | second.weight | "
                          "head.scale | embedding | second.table | "));
    CHECK(buckets_after([](Stage& engine, int) {
              engine.begin_step();
              report_units(engine, {2});
              (void)engine.step(0.01);
          })
          == Texts(world, "second.weight | head.scale | third.empty third.weight | first.bias "
                          "first.weight | embedding | second.table | "));
}

TEST_CASE("A cancelled step does not count as the first, but a skipped one does",
          "[stage][rebuild]") {
    auto const give_up = [](Stage& engine) {
        engine.begin_step();
        report_units(engine, {4, 3, 2, 1, 0});
        engine.cancel_step();
    };
    CHECK(buckets_after([&](Stage& engine, int) { give_up(engine); }) == Texts(world, registered));
    CHECK(buckets_after([&](Stage& engine, int) {
              give_up(engine);
              engine.begin_step();
              report_units(engine, {0, 1, 2, 3, 4});
              (void)engine.step(0.01);
          })
          == Texts(world, forwards));
    auto const is_skipped = on_ranks<int>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 8});
        engine.begin_step();
        engine.begin_micro_step();
        for (std::size_t unit = 0; unit < 5; ++unit) {
            engine.gradients(unit)[engine.layout().unit_parameters(unit).front()][0] =
                std::numeric_limits<float>::infinity();
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
        bool const skipped = engine.step(0.01).report().is_skipped;
        return (skipped ? 1 : 0) + (buckets_of(engine.layout()) == forwards ? 2 : 0);
    });
    CHECK(is_skipped == std::vector<int>(world, 3));
}

TEST_CASE("Buckets are rebuilt only once", "[stage][rebuild]") {
    CHECK(buckets_after([](Stage& engine, int rank) {
              for (std::uint64_t step = 0; step < 3; ++step) {
                  Order const order = step == 0 ? Order{0, 1, 2, 3, 4} : Order{1, 0, 3, 2, 4};
                  (void)run_step(engine, static_cast<std::uint64_t>(rank), step, 1, 0.01, 0, order);
              }
          })
          == Texts(world, forwards));
}

TEST_CASE("Parameters keep the index, name, units and group that they were registered with",
          "[stage][rebuild]") {
    auto const ranks =
        on_ranks<std::vector<std::string>>(world, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            Stage engine(communicator, registration<float>(toy_specs()),
                         {.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 8});
            (void)run_step(engine, rank, 0, 1, 0.01, 0, {0, 1, 2, 3, 4});
            std::vector<std::string> wrong;
            auto const specs = toy_specs();
            for (std::size_t index = 0; index < specs.size(); ++index) {
                ParameterSpec const& found = engine.layout().parameter(index);
                bool const is_same = found.name == specs[index].name
                                     && found.units == specs[index].units
                                     && found.group == specs[index].group;
                auto const weights = engine.acquire(specs[index].units.front());
                if (!is_same || weights[index].size() != specs[index].elements) {
                    wrong.push_back(specs[index].name);
                }
            }
            return wrong;
        });
    for (auto const& wrong : ranks) {
        CHECK(wrong.empty());
    }
}

TEST_CASE("A backward pass out of order needs its leases in the first step only",
          "[stage][rebuild]") {
    // Five units with a bucket each. In forward order all buckets stay open until the last unit,
    // whose bucket is the first in registration order.
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < 5; ++unit) {
        specs.push_back({"w" + std::to_string(unit), 100, {unit}, 0, true});
    }
    auto const train = [&](Stage::Options const& options, std::vector<Order> const& orders) {
        std::vector<Outcome> outcomes;
        for (int const ranks : {1, 2}) {
            auto const all = run_and_observe(ranks, [&](LoopbackCommunicator& communicator) {
                Stage engine(communicator, registration<float>(specs), options);
                for (std::size_t step = 0; step < orders.size(); ++step) {
                    (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                                   0.01, 0, orders[step])
                        .report();
                }
            });
            outcomes.push_back(all.ranks[0]);
        }
        CHECK(outcomes[0].type == outcomes[1].type);
        return outcomes[0].type;
    };
    Order const forward{0, 1, 2, 3, 4};
    CHECK(train({}, {forward}) == "OutOfOrder");
    CHECK(train({.rebuild_buckets = Stage::in_ready_order}, {forward}) == "OutOfOrder");
    CHECK(train({.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 2}, {forward})
          == "OutOfOrder"); // two buckets are planned in flight at once: 2 + 2
    CHECK(train({.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 3},
                {forward, forward, forward})
          == "returned");
    CHECK(train({.extra_leases = 3}, {forward, forward}) == "returned");
    CHECK(
        train({.rebuild_buckets = Stage::in_ready_order, .leases_until_rebuild = 3}, {forward, {}})
        == "OutOfOrder"); // reverse order is now out of order
    CHECK(train({.extra_leases = 1,
                 .rebuild_buckets = Stage::in_ready_order,
                 .leases_until_rebuild = 2},
                {forward, {1, 0, 2, 3, 4}})
          == "returned"); // extra leases stay
}

TEST_CASE("Options that would be ignored are refused", "[stage][rebuild]") {
    std::vector<float> block(1041);
    auto parameters = registration<float>(toy_specs());
    std::size_t begin = 0;
    for (auto& parameter : parameters) {
        parameter.initialise = nullptr;
        parameter.data = block.data() + begin;
        begin += parameter.elements;
    }
    auto const message = [&](Stage::Options const& options) {
        return run_and_observe(1,
                               [&](LoopbackCommunicator& communicator) {
                                   Stage engine(communicator, parameters, options);
                               })
            .rethrown;
    };
    CHECK(message({.storage = Storage::adopted,
                   .adopted_block = block,
                   .rebuild_buckets = Stage::in_ready_order})
          == Outcome{"InvalidArgument",
                     "zero: rebuild_buckets would be ignored, because an adopted block is cut in "
                     "the order of its addresses; leave it out, or use "
                     "Storage::scattered."});
    CHECK(message({.leases_until_rebuild = 1})
          == Outcome{"InvalidArgument", "zero: leases_until_rebuild would be ignored without "
                                        "rebuild_buckets; set both, or use extra_leases."});
    CHECK(message({.storage = Storage::adopted, .adopted_block = block}).type == "returned");
}

TEST_CASE("Ranks of which only some rebuild their buckets get a LayoutMismatch",
          "[stage][rebuild]") {
    for (bool const differs_in_leases : {false, true}) {
        auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
            Stage::Options options{.rebuild_buckets = Stage::in_ready_order};
            if (communicator.rank() == 2) {
                options.rebuild_buckets = differs_in_leases ? Stage::in_ready_order : nullptr;
                options.leases_until_rebuild = differs_in_leases ? 1 : 0;
            }
            Stage engine(communicator, registration<float>(toy_specs()), options);
        });
        for (Outcome const& outcome : outcomes.ranks) {
            CHECK(outcome.type == "LayoutMismatch");
            CHECK_THAT(outcome.message, contains_text("'rebuild_buckets'"));
        }
    }
}

} // namespace zero::test::rebuild_test
