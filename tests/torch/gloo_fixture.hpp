#pragma once

#include "gloo_group.hpp"

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <zero/comm/run_ranks.hpp>

#include <barrier>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace zero::test {

/// @brief The ranks of process groups over gloo, as threads of this process, which send messages.
struct GlooFixture {
    /// Returns options that name the store of the ranks. Ranks share memory.
    static torch::ProcessGroupOptions options(c10::intrusive_ptr<c10d::Store> store) {
        torch::ProcessGroupOptions options;
        options.time_out = std::chrono::seconds(60);
        options.store = std::move(store);
        options.scratch_bytes = 0; // the least, so that collectives have several rounds
        return options;
    }

    /// Calls `body(rank, group, store)` on each rank; rethrows the exception of the first one.
    template <class Body>
    static void run_groups(int world, Body const& body) {
        met = std::make_unique<std::barrier<>>(world);
        c10d::TCPStoreOptions server;
        server.port = 0; // any free port
        server.isServer = true;
        server.waitWorkers = false;
        c10d::TCPStore const host("127.0.0.1", server);
        std::vector<std::exception_ptr> failures(static_cast<std::size_t>(world));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < world; ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    c10d::TCPStoreOptions client;
                    client.port = host.getPort();
                    c10::intrusive_ptr<c10d::Store> const store =
                        c10::make_intrusive<c10d::TCPStore>("127.0.0.1", client);
                    auto const group = gloo_group(store, rank, world);
                    body(rank, group, store);
                } catch (...) {
                    failures[static_cast<std::size_t>(rank)] = std::current_exception();
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
        for (std::exception_ptr const& failure : failures) {
            if (failure) {
                std::rethrow_exception(failure);
            }
        }
    }

    template <class Body>
    static void run(int world, Body const& body) {
        run_groups(world, [&](int, auto const& group, auto const& store) {
            torch::ProcessGroupOptions messages = options(store);
            messages.shares_memory = false;
            torch::ProcessGroupCommunicator communicator(group, messages);
            run_rank(communicator, body);
        });
    }

    static void meet(int /*world*/) { met->arrive_and_wait(); }

    inline static std::unique_ptr<std::barrier<>> met;
};

} // namespace zero::test
