// A training of four ranks, one of which fails. failure_runs_test.cpp starts this program.
//
//     failing_rank <rank> <phase> <kind> <stage>
//
// phase: construct, gather, backward, reduce, step, publish, none; kind: kill, kill1 (at the second
// time) and so on, throw, hang, leave, disagree, pause (of all ranks). Each rank prints its end on
// a line of its own. ZERO_TEST_TIME_OUT_MS sets the time-out. With ZERO_TEST_SPLIT the training
// owns its communicator, which was split from the one of `run_rank`; with ZERO_TEST_GROUPS it runs
// on groups of two ranks, which are sharded ("hybrid"), keep copies ("secondary"), hold parts of a
// model ("model") or other experts beside a dense part ("experts"); with ZERO_TEST_OWN_GATHERS
// gathers have a communicator of their own.

#include <zero/comm/experts.hpp>
#include <zero/comm/groups.hpp>
#include <zero/comm/model_parallel.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/mpi/communicator.hpp>
#include <zero/mpi/session.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/zero_stage.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t units = 3;
constexpr std::size_t width = 5000;
constexpr std::size_t steps = 4;
constexpr std::size_t failing_step = 2;

/// Stops this process in 0.3 s, for 4 s.
void stop_for_a_while() {
    if (::fork() == 0) {
        ::usleep(300000);
        ::kill(::getppid(), SIGSTOP);
        ::usleep(4000000);
        ::kill(::getppid(), SIGCONT);
        ::_exit(0);
    }
}

std::atomic<bool> is_parting = false; ///< set by MPI_Iprobe below

/// Measures the time from the first look of a failed rank at what its peers still send. Of a pause
/// of the process it counts as much as the library does.
class PartingTime {
public:
    explicit PartingTime(std::chrono::milliseconds finish_time_out)
        : _limit(finish_time_out), _thread([this] {
              while (!_is_done) {
                  if (is_parting && !_time) {
                      _time.emplace(_limit);
                  }
                  (void)(_time && _time->poll());
                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
              }
          }) {}
    PartingTime(PartingTime const&) = delete;
    PartingTime& operator=(PartingTime const&) = delete;
    ~PartingTime() { (void)in_time_outs(); }

    /// Ends the measurement. Returns the time in units of `finish_time_out`, rounded.
    long in_time_outs() {
        if (_thread.joinable()) {
            _is_done = true;
            _thread.join();
        }
        return _time ? std::lround(std::chrono::duration<double>(_time->waited())
                                   / std::chrono::duration<double>(_limit))
                     : 0;
    }

private:
    std::chrono::milliseconds _limit;
    std::optional<zero::detail::PolledTime> _time{};
    std::atomic<bool> _is_done = false;
    std::thread _thread;
};

struct Failure {
    int own = 0; ///< rank of this process
    int rank = 0;
    std::string phase;
    std::string kind;

    /// Fails if this rank and phase were selected.
    void at(char const* now) const {
        static bool has_paused = false;
        if (kind == "pause" && phase == now && !std::exchange(has_paused, true)) {
            stop_for_a_while();
            // The others wait for this rank when all are stopped.
            ::usleep(own == rank ? 1000000 : 0);
        }
        if (own != rank || phase != now) {
            return;
        }
        static int calls = 0;
        if (kind.rfind("kill", 0) == 0 && calls++ == std::atoi(kind.c_str() + 4)) {
            std::raise(SIGKILL);
        }
        if (kind == "throw") {
            throw std::runtime_error("the cause in phase " + phase);
        }
        while (kind == "hang") {
            ::pause();
        }
    }
};

/// @param name of the parameters
template <class Zero>
std::vector<typename Zero::Registration> parameters_of(std::string const& name,
                                                       Failure const& failure) {
    std::vector<typename Zero::Registration> parameters;
    for (std::size_t unit = 0; unit < units; ++unit) {
        parameters.push_back({.name = name + " of unit " + std::to_string(unit),
                              .elements = width,
                              .units = {unit},
                              .initialise = [&](std::size_t, auto values) {
                                  failure.at("construct");
                                  for (auto& value : values) {
                                      value = 1.0F;
                                  }
                              }});
    }
    failure.at("construct");
    return parameters;
}

template <class Engine, class FailAt>
void pass(Engine& engine, FailAt const& fail_at) {
    for (std::size_t unit = 0; unit < units; ++unit) {
        auto const weights = engine.acquire(unit);
        fail_at("gather");
    }
    for (std::size_t unit = units; unit-- > 0;) {
        auto const gradients = engine.gradients(unit);
        fail_at("backward");
        for (std::size_t i = 0; i < width; ++i) {
            gradients[unit][i] += 1.0F;
        }
        engine.gradients_ready(unit);
        fail_at("reduce");
    }
}

/// @param stepping the engine, or the `JointStep` of all
template <class Stepping, class... Engines>
void take_steps(Failure const& failure, Stepping& stepping, Engines&... engines) {
    for (std::size_t step = 0; step < steps; ++step) {
        auto const fail_at = [&](char const* phase) {
            if (step == failing_step) {
                failure.at(phase);
            }
        };
        if (step == failing_step && failure.own == failure.rank && failure.kind == "leave") {
            return;
        }
        stepping.begin_step();
        for (auto const micro_step : {zero::MicroStep::more, zero::MicroStep::last}) {
            (engines.begin_micro_step(micro_step), ...);
            (pass(engines, fail_at), ...);
            (engines.end_micro_step(), ...);
        }
        fail_at("step");
        bool const disagrees =
            step == failing_step && failure.own == failure.rank && failure.kind == "disagree";
        (void)stepping.step(disagrees ? 0.02 : 0.01);
        fail_at("publish");
    }
    ((void)engines.last_report(), ...);
}

template <int N, class Communicator>
void train(Communicator& communicator, Failure const& failure) {
    using Zero = zero::ZeroStage<N, zero::AdamW, Communicator>;
    bool const is_apart = std::getenv("ZERO_TEST_OWN_GATHERS") != nullptr;
    Zero engine(communicator, parameters_of<Zero>("weights", failure),
                {.gradient_clipping = 1.0F, .gather = {.own_communicator = is_apart}});
    take_steps(failure, engine, engine);
}

/// Trains experts on groups of ranks, and a dense part on all of them.
template <int N, class Ranks>
void train_experts(zero::mpi::Communicator& everyone, Ranks& ranks, Failure const& failure) {
    using Dense = zero::ZeroStage<3, zero::AdamW, zero::mpi::Communicator>;
    using Sparse = zero::ZeroStage<N, zero::AdamW, Ranks>;
    std::string const name = "expert " + std::to_string(ranks.model().rank());
    Dense dense(everyone, parameters_of<Dense>("weights", failure), {.gradient_clipping = 1.0F});
    Sparse sparse(ranks, parameters_of<Sparse>(name, failure), {.gradient_clipping = 1.0F});
    zero::JointStep joint(dense, sparse);
    take_steps(failure, joint, dense, sparse);
}

/// Trains on groups of two of the four ranks.
template <class Role>
void train_in_groups(zero::mpi::Communicator& everyone, Failure const& failure, int stage) {
    using Ranks = zero::Groups<zero::mpi::Communicator, Role>;
    auto const train_on = [&](Ranks& ranks) {
        if constexpr (zero::ExpertCommunicator<Ranks>) {
            stage == 2 ? train_experts<2>(everyone, ranks, failure)
                       : train_experts<3>(everyone, ranks, failure);
        } else if constexpr (zero::SecondaryCommunicator<Ranks>) {
            train<3>(ranks, failure);
        } else {
            stage == 2 ? train<2>(ranks, failure) : train<3>(ranks, failure);
        }
    };
    typename Ranks::Options options;
    if constexpr (requires { options.shard; }) {
        options.shard = 2;
    } else if constexpr (requires { options.secondary; }) {
        options.secondary = 2;
    } else if constexpr (requires { options.experts; }) {
        options.experts = 2;
    } else {
        options.model = 2;
    }
    Ranks ranks(everyone, options);
    zero::run_rank(ranks, train_on);
}

/// Returns whether the training succeeded.
bool run(zero::mpi::Session& session, Failure const& failure, int stage) {
    zero::mpi::Options options;
    char const* const time_out = std::getenv("ZERO_TEST_TIME_OUT_MS");
    // The time-out is long, because a busy machine must not look like a rank that hangs.
    options.time_out = std::chrono::seconds(20);
    options.finish_time_out = std::chrono::seconds(10);
    options.heartbeat = std::chrono::milliseconds(200);
    if (time_out != nullptr) { // a rank will hang
        options.time_out = std::chrono::milliseconds(std::atoi(time_out));
        options.finish_time_out = std::chrono::seconds(2);
    }
    if (char const* const finish = std::getenv("ZERO_TEST_FINISH_MS"); finish != nullptr) {
        options.finish_time_out = std::chrono::milliseconds(std::atoi(finish));
    }
    PartingTime parting(options.finish_time_out);
    try {
        zero::mpi::Communicator communicator(session.world(), options);
        auto const train_on = [&](zero::mpi::Communicator& own) {
            stage == 0   ? train<0>(own, failure)
            : stage == 2 ? train<2>(own, failure)
                         : train<3>(own, failure);
        };
        zero::run_rank(communicator, [&](zero::mpi::Communicator& whole) {
            if (char const* const role = std::getenv("ZERO_TEST_GROUPS"); role != nullptr) {
                role[0] == 'h'   ? train_in_groups<zero::Hybrid>(whole, failure, stage)
                : role[0] == 's' ? train_in_groups<zero::Secondary>(whole, failure, stage)
                : role[0] == 'e' ? train_in_groups<zero::Experts>(whole, failure, stage)
                                 : train_in_groups<zero::ModelParallel>(whole, failure, stage);
                return;
            }
            if (std::getenv("ZERO_TEST_SPLIT") == nullptr) {
                train_on(whole);
                return;
            }
            zero::mpi::Communicator part = whole.split(0, whole.rank());
            train_on(part);
        });
        std::printf("rank %d: success\n", session.rank());
        return true;
    } catch (zero::TimedOut const& error) {
        std::printf("rank %d: TimedOut: %s\n", session.rank(), error.what());
    } catch (zero::CollectiveMismatch const& error) {
        std::printf("rank %d: CollectiveMismatch: %s\n", session.rank(), error.what());
    } catch (zero::Aborted const& error) {
        std::printf("rank %d: Aborted: %s\n", session.rank(), error.what());
    } catch (std::exception const& error) {
        std::printf("rank %d: %s\n", session.rank(), error.what());
    }
    // The communicator is destroyed: whatever waits for the peers has done so.
    std::printf("rank %d: times finish_time_out: %ld\n", session.rank(), parting.in_time_outs());
    return false;
}

} // namespace

/// Stands before the function of the library, which calls it only to part from its peers.
extern "C" int MPI_Iprobe(int source, int tag, MPI_Comm communicator, int* is_waiting,
                          MPI_Status* status) {
    is_parting = true;
    return PMPI_Iprobe(source, tag, communicator, is_waiting, status);
}

int main(int argc, char** argv) {
    if (argc != 6) { // the last one names the run
        return 2;
    }
    bool is_good = false;
    int rank = 0;
    {
        zero::mpi::Session session;
        rank = session.rank();
        is_good = run(session, {rank, std::atoi(argv[1]), argv[2], argv[3]}, std::atoi(argv[4]));
        std::fflush(stdout);
    }
    std::printf("rank %d: finalised\n", rank);
    return is_good ? 0 : 1;
}
