// Trains as processes over a communicator of your own, and plants the mistakes that it must
// survive. docs/guides/own_communicator.md explains it.

#include "socket_communicator.hpp"

#include <zero/zero.hpp>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

/// Runs `body(rank, links)` as processes: rank 0 in this one, the others in children that end with
/// it. No other thread may run while it forks.
template <class Body>
void run_processes(int world, Body const& body) {
    auto links = connect_ranks(world);
    auto const keep_only = [&](std::size_t own) { // an end that stays open hides a rank that died
        for (std::size_t rank = 0; rank < links.size(); ++rank) {
            for (Link const& link : links[rank]) {
                if (rank == own || link.data < 0) continue;
                ::close(link.data);
                ::close(link.control);
            }
        }
    };
    std::vector<::pid_t> children;
    for (int rank = 1; rank < world; ++rank) {
        ::pid_t const child = ::fork();
        if (child < 0) throw zero::CommunicatorError("run_processes: fork failed.", errno);
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        keep_only(static_cast<std::size_t>(rank));
        int status = 0;
        try {
            body(rank, links[static_cast<std::size_t>(rank)]);
        } catch (std::exception const&) {
            status = 1;
        }
        ::_exit(status);
    }
    keep_only(0);
    std::exception_ptr failure;
    try {
        body(0, links[0]);
    } catch (...) {
        failure = std::current_exception();
    }
    for (::pid_t const child : children) ::waitpid(child, nullptr, 0);
    if (failure) std::rethrow_exception(failure);
}

enum class Mistake { none, unit_skipped, killed };

constexpr std::size_t elements = 3000; // in each of two layers
constexpr std::uint64_t steps = 4;

/// Trains two layers; returns a hash of all parameters.
template <class Zero, class Communicator>
std::uint64_t train(Communicator& communicator, Mistake mistake = Mistake::none) {
    int const rank = communicator.rank();
    std::vector<typename Zero::Registration> const parameters{
        {.name = "first", .elements = elements, .units = {0}},
        {.name = "second", .elements = elements + 1, .units = {1}}};
    Zero engine(communicator, parameters);
    for (std::uint64_t step = 0; step < steps; ++step) {
        if (mistake == Mistake::killed && rank == 1 && step == 2) (void)std::raise(SIGKILL);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            for (std::size_t unit = 2; unit-- > 0;) {
                if (mistake == Mistake::unit_skipped && rank == 1 && step == 1 && unit == 1)
                    continue;
                auto const weights = engine.acquire(unit);
                auto const gradients = engine.gradients(unit);
                for (std::size_t i = 0; i < weights[unit].size(); ++i)
                    gradients[unit][i] += weights[unit][i] - std::sin(static_cast<float>(i))
                                          + static_cast<float>(rank);
                engine.gradients_ready(unit);
            }
        }
        engine.step(0.1);
    }
    zero::Hash hash;
    engine.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
        for (float const value : values) hash.add(double{value});
    });
    return hash.value();
}

/// Trains over sockets. The ranks compare each call before it is sent.
template <int N>
std::uint64_t train_checked(int world, Mistake mistake = Mistake::none) {
    using Communicator = zero::Checked<SocketCommunicator>;
    std::uint64_t hash = 0;
    run_processes(world, [&](int rank, std::vector<Link> const& links) {
        SocketCommunicator transport(rank, links, {.time_out = std::chrono::seconds(60)});
        Communicator communicator(transport);
        hash = zero::run_rank(communicator, [&](Communicator& ready) {
            return train<zero::ZeroStage<N, Communicator, zero::AdamW>>(ready, mistake);
        });
    });
    return hash;
}

/// Trains over sockets without the comparison, which costs a wait in each call.
std::uint64_t train_bare(int world) {
    std::uint64_t hash = 0;
    run_processes(world, [&](int rank, std::vector<Link> const& links) {
        SocketCommunicator communicator(rank, links, {.time_out = std::chrono::seconds(60)});
        hash = zero::run_rank(communicator, [](SocketCommunicator& ready) {
            return train<zero::ZeroStage<3, SocketCommunicator, zero::AdamW>>(ready);
        });
    });
    return hash;
}

std::uint64_t train_on_threads(int world) {
    std::uint64_t hash = 0;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        auto const found = train<zero::ZeroStage<2, zero::AdamW>>(communicator);
        if (communicator.rank() == 0) hash = found;
    });
    return hash;
}

bool report(char const* what, bool holds) {
    std::printf("%s: %s\n", what, holds ? "yes" : "NO");
    return holds;
}

/// Returns the message of the error with which rank 0 ends.
template <int N>
std::string error_of(int world, Mistake mistake) {
    try {
        (void)train_checked<N>(world, mistake);
    } catch (zero::CommunicatorError const& error) {
        return error.what();
    }
    return "";
}

} // namespace

int main() {
    std::uint64_t const expected = train_on_threads(4);
    bool is_good =
        report("four checked processes, stages 0 to 3: the bits of four threads",
               train_checked<0>(4) == expected && train_checked<1>(4) == expected
                   && train_checked<2>(4) == expected && train_checked<3>(4) == expected);
    is_good &= report("four processes without the check, stage 3: the same bits",
                      train_bare(4) == expected);

    std::string const mismatch = error_of<3>(2, Mistake::unit_skipped);
    std::printf("  %s\n", mismatch.c_str());
    is_good &= report("a rank that skips a unit ends both",
                      mismatch.find("rank 1 called") != std::string::npos);

    std::string const loss = error_of<2>(3, Mistake::killed);
    is_good &= report("a rank that is killed ends the others",
                      loss.find("rank 1 left the group") != std::string::npos);
    return is_good ? 0 : 1;
}
