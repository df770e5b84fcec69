#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace zero::test::live_handles_test {

namespace {

/// The end of a child process.
struct End {
    int signal = 0;
    std::string errors; ///< what it printed on stderr
};

/// Runs `body` in a child process.
template <class Body>
End end_of(Body const& body) {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) {
        return {};
    }
    pid_t const child = ::fork();
    if (child == 0) {
        ::dup2(pipe[1], 2);
        body();
        ::_exit(0);
    }
    ::close(pipe[1]);
    End end;
    std::array<char, 512> part{};
    for (ssize_t count = 0; (count = ::read(pipe[0], part.data(), part.size())) > 0;) {
        end.errors.append(part.data(), static_cast<std::size_t>(count));
    }
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return end;
}

template <int N>
using Stage = ZeroStage<N, Sgd>;

template <int N>
std::vector<typename Stage<N>::Registration> model() {
    return {{.name = "w", .elements = 5}};
}

/// Ends an engine while handles live, or after them.
template <int N>
void end_engine(std::size_t weights, std::size_t gradients, bool is_in_order) {
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        std::vector<Weights<typename Stage<N>::EngineType>> held;
        std::vector<Gradients<typename Stage<N>::EngineType>> written;
        std::optional<Stage<N>> engine;
        engine.emplace(communicator, model<N>());
        for (std::size_t count = 0; count < weights; ++count) {
            held.push_back(engine->acquire(0));
        }
        engine->begin_step();
        engine->begin_micro_step(MicroStep::last);
        for (std::size_t count = 0; count < gradients; ++count) {
            written.push_back(engine->gradients(0));
        }
        engine->gradients_ready(0);
        engine->end_micro_step();
        if (is_in_order) {
            held.clear();
            written.clear();
        }
        engine->cancel_step();
        engine.reset();
    });
}

} // namespace

TEST_CASE("An engine that ends while handles live says so and aborts the program") {
    End const weights = end_of([] { end_engine<3>(2, 0, false); });
    CHECK(weights.signal == SIGABRT);
    CHECK(weights.errors
          == "zero: the engine of rank 0 ends while 2 handles of acquire() and 0 of gradients() "
             "live, which would use freed memory; destroy handles before their engine.\n");
    End const gradients = end_of([] { end_engine<1>(0, 1, false); });
    CHECK(gradients.signal == SIGABRT);
    CHECK_THAT(gradients.errors, contains_text("0 handles of acquire() and 1 of gradients() live"));
}

TEST_CASE("An engine ends quietly after its handles, whether they were copied, moved or released") {
    End const in_order = end_of([] { end_engine<3>(2, 2, true); });
    CHECK(in_order.signal == 0);
    CHECK(in_order.errors.empty());
    End const moved = end_of([] {
        run_ranks(1, [](LoopbackCommunicator& communicator) {
            std::optional<Weights<Stage<3>::EngineType>> released;
            {
                Stage<3> engine(communicator, model<3>());
                auto first = engine.acquire(0);
                auto second = std::move(first);
                first = engine.acquire(0);
                first = std::move(second);
                released.emplace(std::move(first));
                released->release();
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                auto const one = engine.gradients(0);
                auto other = one;
                other = engine.gradients(0);
                auto const& same = other;
                other = same;
                engine.cancel_step();
            }
        });
    });
    CHECK(moved.signal == 0);
    CHECK(moved.errors.empty());
}

} // namespace zero::test::live_handles_test
