// A process with states in a file is killed. It forks, so this executable has no other tests.

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/tier/file_tier.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)

namespace zero::test::killed_tier_alone_test {

namespace {

/// Tells another process of each call, before it is made.
class ToldCalls final : public FileCalls {
public:
    ToldCalls(FileCalls& inner, int pipe) : _inner(&inner), _pipe(pipe) {}

    int create(char const* folder, bool is_direct) override {
        tell();
        return _inner->create(folder, is_direct);
    }
    std::int64_t alignment(int file, bool is_direct) override {
        tell();
        return _inner->alignment(file, is_direct);
    }
    int allocate(int file, std::uint64_t bytes) override {
        tell();
        return _inner->allocate(file, bytes);
    }
    std::int64_t read(int file, void* to, std::size_t bytes, std::uint64_t offset) override {
        tell();
        return _inner->read(file, to, bytes, offset);
    }
    std::int64_t write(int file, void const* from, std::size_t bytes,
                       std::uint64_t offset) override {
        tell();
        return _inner->write(file, from, bytes, offset);
    }
    void close(int file) noexcept override {
        tell();
        _inner->close(file);
    }

private:
    void tell() const noexcept {
        char const byte = 0;
        if (::write(_pipe, &byte, 1) != 1) {
            ::_exit(1);
        }
    }

    FileCalls* _inner;
    int _pipe;
};

struct alignas(4096) Chunk {
    std::byte bytes[8192]{};
};

/// Makes a tier, writes and reads it, again and again.
void use_tiers(std::filesystem::path const& folder, FileCalls& calls) {
    HostMemoryResource memory;
    std::vector<std::uint64_t> const sizes(3, sizeof(Chunk));
    std::vector<Chunk> chunks(3);
    for (;;) {
        FileTier tier({.path = folder, .allow_page_cache = true, .calls = &calls}, sizes, "rank 0",
                      memory);
        for (std::size_t chunk = 0; chunk < 3; ++chunk) {
            tier.reading_queue(chunk)->wait(tier.write(chunk, &chunks[chunk]));
            tier.read(chunk, &chunks[chunk]).synchronise();
        }
        tier.rethrow_failure();
    }
}

/// Lets a child process use tiers, and kills it at a call.
void kill_at(std::size_t call, std::filesystem::path const& folder, FileCalls& calls) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t const child = ::fork();
    if (child == 0) {
        try {
            ToldCalls told(calls, ends[1]);
            use_tiers(folder, told);
        } catch (...) {
            ::_exit(1);
        }
    }
    ::close(ends[1]);
    REQUIRE(child > 0);
    char byte = 0;
    for (std::size_t told = 0; told <= call; ++told) {
        REQUIRE(::read(ends[0], &byte, 1) == 1); // fails if the child has ended
    }
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    ::close(ends[0]);
}

/// Kills a child process at a system call, before or after it is made.
/// @return whether it was killed; otherwise it has made fewer
template <class Body>
bool kill_at_stop(std::size_t stop, Body const& body) {
    pid_t const child = ::fork();
    if (child == 0) {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
            ::_exit(77);
        }
        ::raise(SIGSTOP);
        body();
        ::_exit(0);
    }
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    for (std::size_t seen = 0; WIFSTOPPED(status); ++seen) {
        if (seen == stop) {
            ::kill(child, SIGKILL);
        } else {
            ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
        }
        REQUIRE(::waitpid(child, &status, 0) == child);
    }
    CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
}

bool can_trace() {
    pid_t const child = ::fork();
    if (child == 0) {
        ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool has_unnamed(std::filesystem::path const& folder) {
    int const file = ::open(folder.c_str(), O_TMPFILE | O_RDWR, 0600);
    ::close(file);
    return file >= 0;
}

std::size_t files_in(std::filesystem::path const& folder) {
    std::size_t count = 0;
    for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator(folder)) {
        ++count;
    }
    return count;
}

} // namespace

TEST_CASE("A process that is killed at any moment leaves no file of its states") {
    TemporaryFolder const folder;
    TemporaryFolder const with_names;
    std::size_t const most = has_unnamed(folder.path()) ? 0 : 1;
    std::mt19937 random(5);
    for (int turn = 0; turn < 40; ++turn) {
        kill_at(random() % 30, folder.path(), FileCalls::system());
        CHECK(files_in(folder.path()) <= most);
        kill_at(random() % 30, with_names.path(), FileCalls::system_with_names());
        CHECK(files_in(with_names.path()) <= 1);
    }
}

TEST_CASE("A process that is killed at any system call of the construction leaves no file, or "
          "without O_TMPFILE one that the next construction removes") {
    if (!can_trace()) {
        WARN("skipped: this system does not let a process trace its child");
        return;
    }
    TemporaryFolder const folder;
    for (bool const is_named : {false, true}) {
        FileCalls& calls = is_named ? FileCalls::system_with_names() : FileCalls::system();
        auto const make = [&] {
            HostMemoryResource memory;
            std::vector<std::uint64_t> const sizes(3, sizeof(Chunk));
            FileTier const tier({.path = folder.path(), .allow_page_cache = true, .calls = &calls},
                                sizes, "rank 0", memory);
        };
        auto const make_again = [&] { // in a process: this one must have no threads
            pid_t const child = ::fork();
            if (child == 0) {
                make();
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
        };
        std::size_t stop = 0;
        std::size_t left = 0;
        while (stop < 1000 && kill_at_stop(stop, make)) {
            ++stop;
            left += files_in(folder.path());
            make_again();
            CHECK(files_in(folder.path()) == 0);
        }
        CHECK(stop > 10);
        CHECK(stop < 1000);
        CHECK((left != 0) == (is_named || !has_unnamed(folder.path())));
    }
}

TEST_CASE("A construction removes no file of a living process, and none that is not of a tier") {
    TemporaryFolder const folder;
    std::string const locked = (folder / ".zero_tier.Locked").string();
    set_content(folder / ".zero_tier.Left00", "");
    set_content(folder / ".zero_tier.notes.txt", "");
    set_content(folder / ".zero_tier.Filled", "x");
    int const living = ::open(locked.c_str(), O_CREAT | O_RDWR, 0600);
    REQUIRE(::flock(living, LOCK_EX) == 0);
    FileCalls& calls = FileCalls::system_with_names();
    int const file = calls.create(folder.path().c_str(), false);
    CHECK(file >= 0);
    CHECK_FALSE(std::filesystem::exists(folder / ".zero_tier.Left00"));
    CHECK(std::filesystem::exists(locked));
    CHECK(files_in(folder.path()) == 3);
    calls.close(file);
    ::close(living);
}

} // namespace zero::test::killed_tier_alone_test

#endif
