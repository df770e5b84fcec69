#pragma once

// A random model, and micro-steps that write and report its units in any order.

#include "support/outcome.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace zero::test::unplanned_order_test {

/// The choices of a run; the rest follows from the seed.
struct Plan {
    std::uint64_t seed = 0;
    bool is_in_order = false; ///< units come in reverse order, two may be held
    std::size_t extra_leases = 0;
    bool has_callers_gradients = false;
    ReductionSchedule schedule = ReductionSchedule::boundary;
};

struct Model {
    std::vector<ParameterSpec> specs;
    std::size_t units = 0;
    std::size_t bucket_bytes = 0;
};

inline Model random_model(std::mt19937_64& random) {
    Model model;
    model.units = 3 + random() % 6;
    bool const is_mixed = random() % 3 != 0;
    for (std::size_t unit = 0; unit < model.units; ++unit) {
        for (std::size_t count = 1 + random() % 3; count-- > 0;) {
            ParameterSpec spec{"p" + std::to_string(model.specs.size()),
                               random() % (random() % 4 == 0 ? 700 : 150),
                               {unit},
                               0,
                               random() % 8 != 0};
            if (random() % 5 == 0 && unit + 1 < model.units) { // at most two: sums commute
                spec.units.push_back(unit + 1 + random() % (model.units - unit - 1));
            }
            spec.type = is_mixed && random() % 3 == 0 ? 1 : 0;
            model.specs.push_back(spec);
        }
    }
    std::array<std::size_t, 4> const caps{256, 1024, 2048, 1U << 20U};
    model.bucket_bytes = caps[random() % caps.size()];
    return model;
}

/// The gradients of one rank that were written in a micro-step, and whether they were reported.
struct Written {
    std::size_t unit;
    bool is_reported;
};

struct Outcomes {
    std::vector<std::vector<float>> values;    ///< parameters after the run
    std::vector<std::vector<Written>> written; ///< by micro-step
    std::size_t refused = 0;
    std::vector<std::string> wrong;
};

/// Registers the model, with caller-owned gradients for some parameters.
struct Registered {
    Registered(Model const& model, bool has_callers_gradients) {
        auto const halves = registration<bfloat16>(model.specs);
        auto const floats = registration<float>(model.specs);
        for (std::size_t index = 0; index < model.specs.size(); ++index) {
            bool const is_callers =
                has_callers_gradients && index % 3 == 1 && model.specs[index].trainable;
            if (model.specs[index].type == 1) {
                auto parameter = floats[index];
                gradients.emplace_back(is_callers ? parameter.elements : 0);
                parameter.gradient = is_callers ? gradients.back().data() : nullptr;
                parameters.emplace_back(parameter);
            } else {
                auto parameter = halves[index];
                half_gradients.emplace_back(is_callers ? parameter.elements : 0);
                parameter.gradient = is_callers ? half_gradients.back().data() : nullptr;
                parameters.emplace_back(parameter);
            }
        }
    }

    std::vector<AnyParameter> parameters;
    std::deque<std::vector<float>> gradients;
    std::deque<std::vector<bfloat16>> half_gradients;
};

template <class T, class Handle>
void add(Handle const& gradients, std::size_t unit, std::size_t parameter, std::uint64_t key) {
    auto const gradient = gradients.template get<T>(parameter);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        // Rounded first, so that the sum over two units does not depend on their order.
        float const added = to_float(from_float<T>(noise(key, unit * 64 + parameter, i)));
        gradient[i] = from_float<T>(to_float(gradient[i]) + added);
    }
}

template <class Engine>
class Run {
public:
    Run(Engine& engine, Model const& model, std::uint64_t rank, Outcomes& outcomes)
        : _engine(&engine), _model(&model), _rank(rank), _outcomes(&outcomes) {}

    /// Writes a unit's gradients. Returns false if the engine refused it.
    bool write(std::size_t unit, std::uint64_t micro_step) {
        return is_done([&] {
            auto const gradients = _engine->gradients(unit);
            for (std::size_t index = 0; index < _model->specs.size(); ++index) {
                auto const& units = _model->specs[index].units;
                if (std::find(units.begin(), units.end(), unit) == units.end()) {
                    continue;
                }
                std::uint64_t const key = _rank * 1000 + micro_step;
                if (_model->specs[index].type == 1) {
                    add<float>(gradients, unit, index, key);
                } else {
                    add<bfloat16>(gradients, unit, index, key);
                }
            }
        });
    }

    bool report(std::size_t unit) {
        return is_done([&] { _engine->gradients_ready(unit); });
    }

    bool is_done(auto const& call) {
        Outcome const outcome = outcome_of(call);
        if (outcome.type == "OutOfOrder"
            && outcome.message.find("bug of zero") == std::string::npos) {
            ++_outcomes->refused;
            return false;
        }
        if (outcome.type != "returned") {
            _outcomes->wrong.push_back(outcome.type + ": " + outcome.message);
            throw Aborted(outcome.message);
        }
        return true;
    }

    /// Holds a unit's weights and compares a few with those before the step.
    template <class Held>
    void hold(Held& held, std::size_t unit, std::vector<std::vector<float>> const& expected) {
        (void)is_done([&] {
            held = _engine->acquire(unit);
            for (std::size_t index = 0; index < _model->specs.size(); ++index) {
                auto const& spec = _model->specs[index];
                if (std::find(spec.units.begin(), spec.units.end(), unit) == spec.units.end()) {
                    continue;
                }
                for (std::size_t i = 0; i < spec.elements; ++i) {
                    float const found = spec.type == 1
                                            ? held->template get<float>(index)[i]
                                            : to_float(held->template get<bfloat16>(index)[i]);
                    if (found != expected[index][i]) {
                        _outcomes->wrong.push_back("weights of " + spec.name);
                        return;
                    }
                }
            }
        });
    }

    /// Writes and reports units in any order, and some never.
    void unplanned_micro_step(std::mt19937_64& random, std::uint64_t micro_step,
                              std::vector<std::vector<float>> const& expected, bool is_in_order) {
        using Held = std::optional<decltype(_engine->acquire(0))>;
        std::vector<std::size_t> units;
        for (std::size_t unit = _model->units; unit-- > 0;) {
            units.push_back(unit);
        }
        if (!is_in_order) {
            std::shuffle(units.begin(), units.end(), random);
        }
        auto& written = _outcomes->written.emplace_back();
        Held held;
        Held second;
        std::vector<std::size_t> late;
        for (std::size_t const unit : units) {
            if (!is_in_order && random() % 3 == 0) {
                hold(second, units[random() % units.size()], expected);
            }
            if (is_in_order || random() % 2 == 0) {
                second.reset();
            }
            Held next;
            hold(next, unit, expected); // while the one before is held
            std::swap(held, next);
            next.reset();
            if (random() % 4 == 0) {
                hold(second, unit, expected); // twice
            }
            if (!is_in_order && random() % 8 == 0) {
                continue; // is never used
            }
            if (!write(unit, micro_step)) {
                continue;
            }
            written.push_back({unit, false});
            if (!is_in_order && random() % 4 == 0) {
                late.push_back(written.size() - 1);
            } else {
                written.back().is_reported = report(unit);
            }
        }
        for (std::size_t const index : late) {
            if (random() % 2 == 0) {
                written[index].is_reported = report(written[index].unit);
            }
        }
    }

private:
    Engine* _engine;
    Model const* _model;
    std::uint64_t _rank;
    Outcomes* _outcomes;
};

} // namespace zero::test::unplanned_order_test
