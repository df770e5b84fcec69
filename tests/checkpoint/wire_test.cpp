// Checkpoints of a run whose weights travel in codes.

#include "stage/wire_model.hpp"
#include "support/catch.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/zero.hpp>

#include <cstdint>
#include <filesystem>
#include <vector>

namespace zero::test::wire_checkpoint_test {

namespace {

using namespace wire_model;

template <int N>
using Coded = ZeroStage<N, Parameters<bfloat16>, Wire<Int8Blocks>>;

/// The end of a run of four steps, and what it read at the beginning.
struct End {
    Values first, read, masters;
    friend bool operator==(End const&, End const&) = default;
};

/// Runs from a step to the fourth one, and saves after the second.
template <int N>
std::vector<End> run(std::uint64_t begin, std::filesystem::path const& directory, bool saves) {
    return on_ranks<End>(3, [&](LoopbackCommunicator& all) {
        auto const rank = static_cast<std::uint64_t>(all.rank());
        typename Coded<N>::Options options;
        options.reduction.schedule = ReductionSchedule::boundary;
        Coded<N> engine(all, registration<bfloat16>(toy_specs()), options);
        if (begin != 0) {
            load_checkpoint(engine, directory);
        }
        End end;
        end.first = full_parameters(engine);
        for (std::uint64_t step = begin; step < 4; ++step) {
            (void)step_of(engine, rank, step).report();
            if (saves && step == 1) {
                save_checkpoint(engine, directory);
                end.first = full_parameters(engine);
            }
        }
        end.read = full_parameters(engine);
        TrainingState state(engine);
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            end.masters.push_back(state.full_fp32_parameter(parameter));
        }
        return end;
    });
}

template <int N>
void check_resumed() {
    CAPTURE(N);
    TemporaryFolder const folder;
    auto const expected = run<N>(0, folder.path(), true);
    CHECK((run<1>(2, folder.path(), false) == expected));
    CHECK((run<2>(2, folder.path(), false) == expected));
    CHECK((run<3>(2, folder.path(), false) == expected));
}

} // namespace

TEST_CASE(
    "A run with weights in codes goes on from a checkpoint of any stage in any stage with the "
    "same bits") {
    check_resumed<1>();
    check_resumed<2>();
    check_resumed<3>();
}

TEST_CASE("A checkpoint holds exact master weights, so a run without codes goes on from them") {
    TemporaryFolder const folder;
    auto const ended = run<2>(0, folder.path(), true)[0];
    auto const masters = on_ranks<Values>(2, [&](LoopbackCommunicator& all) {
        ZeroStage<2, Parameters<bfloat16>> engine(all, registration<bfloat16>(toy_specs()));
        engine.for_each_owned_slice([](auto const& slice) { // the load replaces it
            for (auto& value : slice.values) {
                value = from_float<bfloat16>(7.0F);
            }
        });
        load_checkpoint(engine, folder.path());
        TrainingState(engine).publish_master_weights(); // the file holds what was decoded
        Values values;
        for (std::size_t parameter = 0; parameter < toy_specs().size(); ++parameter) {
            values.push_back(TrainingState(engine).full_fp32_parameter(parameter));
        }
        Values const read = full_parameters(engine);
        for (std::size_t i = 0; i < 500; ++i) {
            if (read[1][i] != to_float(from_float<bfloat16>(values[1][i]))) {
                return Values();
            }
        }
        return values;
    });
    CHECK(masters[0] == masters[1]);
    CHECK(ended.first[1] == wire_model::coded<Int8Blocks, bfloat16>(masters[0][1]));
}

TEST_CASE("A load forgets the errors of the steps before it, in an engine that has run as in a new "
          "one") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>;
    TemporaryFolder const folder;
    struct Ends {
        Values uninterrupted, resumed;
    };
    auto const run = [&](bool is_new) {
        return on_ranks<Ends>(2, [&](LoopbackCommunicator& all) {
            auto const rank = static_cast<std::uint64_t>(all.rank());
            Stage engine(all, registration<bfloat16>(toy_specs()));
            auto const steps = [&](std::uint64_t begin) {
                for (std::uint64_t step = begin; step < 5; ++step) {
                    (void)step_of(engine, rank, step).report();
                    if (step == 1 && begin == 0) {
                        save_checkpoint(engine, folder.path());
                    }
                }
                return full_parameters(engine);
            };
            Ends ends;
            if (!is_new) {
                ends.uninterrupted = steps(0);
            }
            load_checkpoint(engine, folder.path());
            ends.resumed = steps(2);
            return ends;
        });
    };
    auto const ran = run(false);
    auto const fresh = run(true);
    CHECK((ran[0].resumed == fresh[0].resumed));
    CHECK((ran[0].resumed == ran[1].resumed));
    CHECK((ran[0].uninterrupted != ran[0].resumed)); // or the errors did not matter
}

} // namespace zero::test::wire_checkpoint_test
