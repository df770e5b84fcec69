// The cost of a step of one rank besides its elements: per parameter of a unit, and per unit with a
// bucket of its own.

#include "counted.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace zero;

/// @tparam N the stage
/// @tparam has_units whether each parameter is a unit of its own; all parameters have 64 elements,
/// which need no padding
template <int N, bool has_units>
class Step {
public:
    explicit Step(std::size_t parameters)
        : _ranks(LoopbackCommunicator::make_group(1)), _units(has_units ? parameters : 1),
          _engine(_ranks[0], registrations(parameters), options()) {
        (*this)(); // the first step, which also creates events and buffers, is not counted
    }

    void operator()() {
        _engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : _engine.micro_steps(1)) {
            for (std::size_t unit = 0; unit < _units; ++unit) {
                (void)_engine.acquire(unit);
            }
            // One gradient: a step without any throws.
            _engine.hand_over(_units - 1, _units - 1, _gradient);
            for (std::size_t unit = _units; unit-- > 0;) {
                _engine.gradients_ready(unit);
            }
        }
        _engine.step(1e-3);
    }

private:
    using Stage = ZeroStage<N>;

    static std::vector<typename Stage::Registration> registrations(std::size_t parameters) {
        std::vector<typename Stage::Registration> result(parameters);
        for (std::size_t i = 0; i < parameters; ++i) {
            result[i].name = std::to_string(i);
            result[i].elements = 64;
            result[i].units = {has_units ? i : 0};
        }
        return result;
    }

    static typename Stage::Options options() {
        typename Stage::Options result;
        result.gradient_clipping = 1.0F;
        result.communication_queue = HostBackend::default_compute_queue();
        if constexpr (has_units && N < 3) {
            result.bucketer.bucket_bytes = 64 * sizeof(float);
        }
        return result;
    }

    std::vector<LoopbackCommunicator> _ranks;
    std::size_t _units;
    std::vector<float> _gradient = std::vector<float>(64);
    Stage _engine;
};

} // namespace

void zero::test::count_steps(host::InstructionSet set) {
    constexpr std::size_t few = 128;
    if (set == host::InstructionSet::avx2) { // with the baseline the elements dominate
        count<Step<2, false>>("step/stage 2/parameters/avx2", few);
        count<Step<2, true>>("step/stage 2/buckets/avx2", few);
        count<Step<3, true>>("step/stage 3/units/avx2", few);
    }
}
