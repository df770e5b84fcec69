#include "support/catch.hpp"
#include "support/lockstep.hpp"
#include "support/outcome.hpp"
#include "support/toy_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/stage/register_block.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

// Whatever construction accepts runs in the documented order, in every stage and on every W, with
// the bits of stage 0: a forward pass by unit number and a backward pass by descending unit number,
// each unit acquired while the one before is held, and reported before the next is written.

namespace zero::test::documented_order_alone_test {

namespace {

using Random = std::mt19937_64;

struct Case {
    std::uint64_t seed = 0;
    std::size_t world = 1;
    std::vector<ParameterSpec> specs;
    std::vector<char> is_registered;  ///< by parameter: its gradient is in the caller's memory
    std::vector<char> is_handed;      ///< by unit: its other gradients are handed over
    std::vector<char> is_silent;      ///< by unit: it reports and writes nothing
    Storage storage = Storage::owned; ///< of stages 0 to 2
    bool has_gradient_block = false;
    bool is_dealt = false; ///< the partitioner fills buckets in an order of its own
    bool visits_empty_units = false;
    std::size_t groups = 1;
    std::size_t micro_steps = 1;
    std::size_t bucket_bytes = 0;
    ReductionSchedule schedule = ReductionSchedule::boundary;
    GatherOptions gather{};
    std::size_t gap = 0; ///< elements between parameters of an adopted block

    [[nodiscard]] std::size_t units() const {
        std::size_t units = 0;
        for (auto const& spec : specs) {
            units = std::max(units, spec.units.back() + 1);
        }
        return units;
    }

    [[nodiscard]] std::string text() const {
        std::string text = "seed " + std::to_string(seed) + ", W " + std::to_string(world)
                           + ", storage " + std::to_string(static_cast<int>(storage));
        for (std::size_t index = 0; index < specs.size(); ++index) {
            auto const& spec = specs[index];
            text += " {" + std::to_string(spec.elements) + ", units";
            for (std::size_t const unit : spec.units) {
                text += " " + std::to_string(unit);
            }
            text += std::string(spec.trainable ? "" : " frozen")
                    + (is_registered[index] != 0 ? " registered" : "") + "}";
        }
        text += ", bucket " + std::to_string(bucket_bytes) + ", schedule "
                + std::to_string(static_cast<int>(schedule)) + ", micro "
                + std::to_string(micro_steps) + ", threshold "
                + std::to_string(gather.persistence_threshold) + "/"
                + std::to_string(gather.max_persistent_elements) + ", prefetch "
                + (gather.prefetch_elements ? std::to_string(*gather.prefetch_elements) : "-")
                + ", keep " + std::to_string(gather.keep_after_forward) + "/"
                + std::to_string(gather.keep_until_update) + ", reuse "
                + (gather.max_reuse_distance ? std::to_string(*gather.max_reuse_distance) : "-")
                + ", live " + std::to_string(gather.max_live_elements) + ", block "
                + std::to_string(has_gradient_block) + ", dealt " + std::to_string(is_dealt)
                + ", empty " + std::to_string(visits_empty_units);
        return text;
    }
};

Case make_case(std::uint64_t seed) {
    Random random(seed);
    auto const below = [&](std::size_t bound) {
        return static_cast<std::size_t>(random() % bound);
    };
    auto const chance = [&](std::size_t percent) { return below(100) < percent; };
    Case c;
    c.seed = seed;
    c.world = 1 + below(8);
    // Units need not be contiguous: numbers may be left out.
    std::vector<std::size_t> units;
    std::size_t number = 0;
    bool const has_gaps = chance(20);
    for (std::size_t count = 1 + below(6); count-- > 0;) {
        number += units.empty() && !has_gaps ? 0 : has_gaps ? below(3) : 1;
        if (units.empty() || units.back() < number) {
            units.push_back(number);
        }
    }
    bool const is_sorted = chance(20);
    c.groups = 1 + below(3);
    for (std::size_t count = 1 + below(12); count-- > 0;) {
        std::array<std::size_t, 4> const most{701, 65, 200, 2};
        ParameterSpec spec{"p" + std::to_string(c.specs.size()),
                           chance(30) ? 64 * below(11) : below(most[below(4)]),
                           {units[below(units.size())]},
                           below(c.groups),
                           !chance(12)};
        if (chance(12)) {
            std::size_t const other = units[below(units.size())];
            if (other != spec.units.front()) {
                spec.units.push_back(other);
                std::sort(spec.units.begin(), spec.units.end());
            }
        }
        c.specs.push_back(spec);
    }
    if (is_sorted) {
        std::stable_sort(c.specs.begin(), c.specs.end(), [](auto const& a, auto const& b) {
            return a.units.front() < b.units.front();
        });
    }
    c.specs[below(c.specs.size())].trainable = true;
    bool is_any_trained = false;
    for (auto& spec : c.specs) {
        is_any_trained = is_any_trained || (spec.trainable && spec.elements != 0);
    }
    if (!is_any_trained) {
        c.specs.front().trainable = true;
        c.specs.front().elements = 5;
    }
    std::vector<std::size_t> used; // every group has a parameter
    for (auto const& spec : c.specs) {
        if (std::find(used.begin(), used.end(), spec.group) == used.end()) {
            used.push_back(spec.group);
        }
    }
    for (auto& spec : c.specs) {
        spec.group = static_cast<std::size_t>(std::find(used.begin(), used.end(), spec.group)
                                              - used.begin());
    }
    c.groups = used.size();
    std::size_t const percent = std::array<std::size_t, 4>{0, 30, 60, 100}[below(4)];
    for (auto const& spec : c.specs) {
        c.is_registered.push_back(spec.trainable && spec.elements != 0 && chance(percent));
    }
    for (std::size_t unit = 0; unit < c.units(); ++unit) {
        c.is_handed.push_back(chance(10));
        bool is_trained = false; // the first trained parameter gets a gradient
        for (auto const& spec : c.specs) {
            if (spec.trainable && spec.elements != 0) {
                is_trained =
                    std::find(spec.units.begin(), spec.units.end(), unit) != spec.units.end();
                break;
            }
        }
        c.is_silent.push_back(!is_trained && chance(5));
    }
    c.storage = std::array<Storage, 4>{Storage::owned, Storage::owned, Storage::scattered,
                                       Storage::adopted}[below(4)];
    c.is_dealt = c.storage != Storage::adopted && chance(25);
    c.gap = chance(30) ? 64 * below(3) + below(3) : 0;
    bool is_all_registered = true;
    for (std::size_t index = 0; index < c.specs.size(); ++index) {
        auto const& spec = c.specs[index];
        is_all_registered =
            is_all_registered
            && (!spec.trainable || spec.elements == 0 || c.is_registered[index] != 0);
    }
    c.has_gradient_block = c.storage == Storage::adopted && (is_all_registered || chance(20));
    c.visits_empty_units = chance(50);
    c.schedule = chance(50) ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
    c.micro_steps =
        c.has_gradient_block && c.schedule == ReductionSchedule::boundary ? 1 : 1 + below(2);
    c.bucket_bytes =
        std::array<std::size_t, 5>{1, 256, 1024, 4096, std::size_t{25} << 20U}[below(5)];
    if (chance(40)) {
        c.gather.prefetch_elements = std::array<std::size_t, 4>{0, 100, 800, 10000}[below(4)];
    }
    if (chance(40)) {
        c.gather.persistence_threshold =
            std::array<std::size_t, 5>{1, 64, 130, 300, 1000}[below(5)];
        if (chance(30)) {
            c.gather.max_persistent_elements = below(1500);
        }
    }
    if (chance(20)) {
        c.gather.max_reuse_distance = below(2000);
    }
    if (chance(20)) {
        c.gather.keep_after_forward = chance(30) ? GatherOptions::all : below(4);
    }
    if (chance(20)) {
        c.gather.keep_until_update = below(3000);
    }
    if (chance(25)) { // room for the persistent parameters and the largest unit
        std::vector<std::size_t> unit_elements(c.units(), 0);
        std::size_t persistent = 64 * c.world;
        std::size_t left = c.gather.max_persistent_elements;
        for (auto const& spec : c.specs) {
            std::size_t const padded = (spec.elements + 63) / 64 * 64 + 64 * c.world;
            bool const is_persistent =
                spec.elements <= c.gather.persistence_threshold && spec.elements <= left;
            left -= is_persistent ? spec.elements : 0;
            persistent += is_persistent || c.gather.keep_until_update != 0 ? padded : 0;
            for (std::size_t const unit : spec.units) {
                unit_elements[unit] += padded;
            }
        }
        c.gather.max_live_elements = persistent
                                     + *std::max_element(unit_elements.begin(), unit_elements.end())
                                     + below(3000) * below(2);
    }
    return c;
}

struct Result {
    Outcome outcome;
    bool is_constructed = false;
    std::vector<std::vector<float>> values;
};

/// One rank's model.
class Model {
public:
    Model(Case const& c, int stage) : _case(&c) {
        _storage = stage == 3 ? Storage::owned : c.storage;
        std::size_t begin = c.gap;
        for (auto const& spec : c.specs) {
            _begins.push_back(begin);
            begin += spec.elements + c.gap;
        }
        _data.assign(begin + 1, 0.0F);
        _gradients.assign(begin + 1, 0.0F);
        for (std::size_t index = 0; index < c.specs.size(); ++index) {
            auto const& spec = c.specs[index];
            Parameter<float> parameter;
            parameter.name = spec.name;
            parameter.elements = spec.elements;
            parameter.units = spec.units;
            parameter.group = spec.group;
            parameter.trainable = spec.trainable;
            for (std::size_t i = 0; i < spec.elements; ++i) {
                _data[_begins[index] + i] = noise(1, index, i);
            }
            (_storage == Storage::owned ? _initial : _in_use).push_back(index);
            if (_storage == Storage::owned) {
                parameter.initial = _data.data() + _begins[index];
            } else {
                parameter.data = _data.data() + _begins[index];
            }
            if (is_registered(index)) {
                if (c.has_gradient_block) {
                    parameter.gradient = _gradients.data() + _begins[index];
                } else {
                    _scattered.push_back(std::make_unique<float[]>(spec.elements));
                    parameter.gradient = _scattered.back().get();
                }
            }
            _parameters.push_back(parameter);
        }
    }

    [[nodiscard]] bool is_registered(std::size_t index) const {
        auto const& spec = _case->specs[index];
        return _case->has_gradient_block ? spec.trainable && spec.elements != 0
                                         : _case->is_registered[index] != 0;
    }

    [[nodiscard]] auto const& parameters() const { return _parameters; }
    [[nodiscard]] Storage storage() const { return _storage; }
    [[nodiscard]] float* block() { return _data.data(); }
    [[nodiscard]] std::size_t block_elements() const { return _data.size() - 1; }

    template <class Engine>
    void run(Engine& engine, std::size_t rank) {
        // What a rank gathers does not depend on the handles that it holds.
        bool const holds_two = _case->gather.max_live_elements == GatherOptions::all
                               && (_case->seed + rank * 7) % 5 != 0;
        std::vector<std::size_t> units;
        for (std::size_t unit = 0; unit < _case->units(); ++unit) {
            if (_case->visits_empty_units || !engine.layout().unit_parameters(unit).empty()) {
                units.push_back(unit);
            }
        }
        for (std::size_t step = 0; step < 2; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(_case->micro_steps)) {
                using Held = std::optional<decltype(engine.acquire(0))>;
                Held held;
                auto const use = [&](std::size_t unit) {
                    if (!holds_two) {
                        held.reset();
                    }
                    Held next = engine.acquire(unit);
                    std::swap(held, next);
                };
                for (std::size_t const unit : units) {
                    use(unit);
                }
                for (std::size_t at = units.size(); at-- > 0;) {
                    std::size_t const unit = units[at];
                    use(unit);
                    backward(engine, unit, *held, rank * 100 + step * 10 + micro_step);
                }
            }
            (void)engine.step(0.01);
        }
    }

private:
    template <class Engine, class Held>
    void backward(Engine& engine, std::size_t unit, Held const& weights, std::uint64_t key) {
        if (_case->is_silent[unit] != 0) {
            bool is_callers = false;
            for (std::size_t const index : engine.layout().unit_parameters(unit)) {
                is_callers = is_callers || is_registered(index);
            }
            if (!is_callers) {
                engine.gradients_ready(unit);
                return;
            }
        }
        auto const add_slope = [&](std::size_t index, std::span<float> gradient) {
            auto const values = weights[index]; // asked for once: each call looks the unit up
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                gradient[i] += values[i] * 0.25F + noise(key, unit * 64 + index, i);
            }
        };
        if (_case->is_handed[unit] != 0) {
            for (std::size_t const index : engine.layout().unit_parameters(unit)) {
                auto const& spec = _case->specs[index];
                if (spec.trainable && !is_registered(index)) {
                    std::vector<float> gradient(spec.elements);
                    add_slope(index, gradient);
                    (void)engine.hand_over(unit, index, gradient);
                }
            }
        }
        auto const gradients = engine.gradients(unit);
        for (std::size_t const index : engine.layout().unit_parameters(unit)) {
            if (!_case->specs[index].trainable
                || (_case->is_handed[unit] != 0 && !is_registered(index))) {
                continue;
            }
            add_slope(index, gradients[index]);
        }
        engine.gradients_ready(unit);
    }

    Case const* _case;
    Storage _storage{};
    std::vector<std::size_t> _begins;
    std::vector<float> _data;
    std::vector<float> _gradients;
    std::vector<std::size_t> _initial;
    std::vector<std::size_t> _in_use;
    std::vector<std::unique_ptr<float[]>> _scattered;
    std::vector<Parameter<float>> _parameters;
};

/// The same policies, with a partitioner that cuts in an order or at places of its own.
template <int N>
using Dealt = ZeroStage<N, LockstepCommunicator,
                        std::conditional_t<N == 3, BalancedPartitioner, DealtGroupPartitioner>>;

template <int N, class Stage>
void run_rank(Case const& c, LockstepGroup& group, std::size_t rank, Result& result) {
    result.outcome = outcome_of([&] {
        LockstepCommunicator communicator(group, rank);
        Model model(c, N);
        typename Stage::Options options{.storage = model.storage(),
                                        .gather = N == 3 ? c.gather : GatherOptions{},
                                        .poison = (c.seed % 2) != 0,
                                        .reduction = {.schedule = c.schedule}};
        if constexpr (N != 3) {
            options.bucketer.bucket_bytes = c.bucket_bytes;
        }
        for (std::size_t index = 0; index < c.groups; ++index) {
            typename decltype(options.groups)::value_type entry;
            entry.optimizer.weight_decay = 0.1 * static_cast<double>(index);
            options.groups.push_back(entry);
        }
        if (model.storage() == Storage::adopted) {
            options.adopted_block = {model.block(), model.block_elements()};
        }
        static thread_local host::InlineQueue queue;
        options.communication_queue = &queue;
        Stage engine(communicator, model.parameters(), options);
        result.is_constructed = true;
        model.run(engine, rank);
        result.values = full_parameters(engine);
    });
}

template <int N>
std::vector<Result> run(Case const& c) {
    std::vector<Result> results(c.world);
    LockstepGroup group(c.world);
    group.run([&](std::size_t rank) {
        if (c.is_dealt) {
            run_rank<N, Dealt<N>>(c, group, rank, results[rank]);
        } else {
            run_rank<N, ZeroStage<N, LockstepCommunicator>>(c, group, rank, results[rank]);
        }
    });
    return results;
}

struct Counts {
    std::size_t cases = 0;
    std::size_t refused = 0; ///< by construction
    std::map<std::string, std::size_t> failures;
    std::map<std::string, std::string> examples;
    std::map<std::string, std::string> refusals;
};

void check(Case const& c, Counts& counts) {
    ++counts.cases;
    std::array<std::vector<Result>, 4> const stages{run<0>(c), run<1>(c), run<2>(c), run<3>(c)};
    bool is_refused = false;
    auto const fail = [&](std::size_t stage, std::string const& what, std::string const& message) {
        std::string key;
        for (char const letter : what) {
            key += letter >= '0' && letter <= '9' ? '#' : letter;
        }
        key = "stage " + std::to_string(stage) + ": " + key.substr(0, 90);
        if (counts.failures[key]++ == 0) {
            counts.examples[key] = c.text() + "\n      " + message;
        }
    };
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        for (auto const& result : stages[stage]) {
            if (!result.is_constructed && result.outcome.type == "InvalidArgument") {
                is_refused = true;
                counts.refusals[result.outcome.message] = c.text();
                break;
            }
            if (result.outcome.type != "returned") {
                if (result.outcome.type != "Aborted") {
                    fail(stage, result.outcome.type + ": " + result.outcome.message,
                         result.outcome.message);
                    break;
                }
            } else if (!stages[0][0].values.empty() && result.values != stages[0][0].values) {
                fail(stage, "other bits than stage 0", "");
                break;
            }
        }
    }
    counts.refused += is_refused ? 1 : 0;
}

/// Returns the failures of one registration in all stages for W = 1 to 8, or "".
std::string failures_of(std::vector<ParameterSpec> const& specs,
                        std::vector<char> const& registered, Storage storage = Storage::owned,
                        GatherOptions const& gather = {}) {
    Case c;
    c.specs = specs;
    c.is_registered = registered;
    c.is_handed.assign(c.units(), false);
    c.is_silent.assign(c.units(), false);
    c.storage = storage;
    c.bucket_bytes = std::size_t{25} << 20U;
    c.gather = gather;
    Counts counts;
    for (c.world = 1; c.world <= 8; ++c.world) {
        check(c, counts);
    }
    std::string text = counts.refused == 0 ? "" : "refused";
    for (auto const& [what, count] : counts.failures) {
        text += what + "\n";
    }
    return text;
}

std::uint64_t from_environment(char const* name, std::uint64_t otherwise) {
    char const* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

} // namespace

TEST_CASE("Whatever construction accepts runs in the documented order in every stage, with the "
          "bits of stage 0") {
    Counts counts;
    std::uint64_t const cases = from_environment("ZERO_ORDER_CASES", 20000);
    std::uint64_t const first = from_environment("ZERO_ORDER_FIRST", 1);
    for (std::uint64_t seed = first; seed < first + cases; ++seed) {
        check(make_case(seed), counts);
    }
    std::string text;
    for (auto const& [what, count] : counts.failures) {
        text += "\n  " + std::to_string(count) + " x " + what + "\n    " + counts.examples[what];
    }
    std::printf("%s\n", text.c_str());
    std::size_t shown = 0;
    for (auto const& [what, example] : counts.refusals) {
        if (shown++ < 12) {
            std::printf("refused: %s\n   %s\n", what.c_str(), example.c_str());
        }
    }
    std::printf("documented order: %zu cases, %zu refused by construction\n", counts.cases,
                counts.refused);
    CHECK(text == "");
    CHECK(counts.refused * 20 <= counts.cases);
}

TEST_CASE("Units in any order, persistent parameters beside caller-owned gradients, and an adopted "
          "block without gradients run on every W") {
    CHECK(failures_of({{"a", 640, {2}}, {"b", 704, {0}}, {"c", 64, {1}}, {"d", 640, {2}}},
                      {false, false, false, false})
          == "");
    std::vector<ParameterSpec> units;
    for (std::size_t unit = 0; unit < 3; ++unit) {
        units.push_back({"w" + std::to_string(unit), 640, {unit}});
        units.push_back({"b" + std::to_string(unit), 64, {unit}});
    }
    CHECK(failures_of(units, {false, false, true, true, true, true}, Storage::owned,
                      {.persistence_threshold = 64})
          == "");
    CHECK(failures_of(units, {false, false, true, false, true, false}, Storage::owned,
                      {.persistence_threshold = 64})
          == "");
    CHECK(failures_of({{"weight", 200, {0}}, {"bias", 1, {0}}}, {false, false}, Storage::adopted)
          == "");
}

TEST_CASE("A block without gradients is registered with a null pointer") {
    std::vector<float> block(201);
    std::vector<std::size_t> const sizes{200, 1};
    std::vector<std::string> const names{"weight", "bias"};
    auto const same = register_block(block.data(), nullptr, sizes, names);
    CHECK(same[1].data == block.data() + 200);
    CHECK(same[1].gradient == nullptr);
    auto const other = register_block<float, bfloat16>(block.data(), nullptr, sizes, names);
    CHECK(other[1].data == block.data() + 200);
    CHECK(other[1].gradient == nullptr);
}

} // namespace zero::test::documented_order_alone_test
