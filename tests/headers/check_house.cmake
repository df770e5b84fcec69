# cmake -DROOT=<repository> [-DMOST_FILES=<n>] [-DMOST_IN_A_FOLDER=<n>] [-DLEAST_MEDIAN=<lines>] [-DMOST_CEREMONY=<percent>] [-DSMALL_LINES=<n>] -P check_house.cmake
# The size of the house, in include/zero:
#   - at most MOST_FILES files, and at most MOST_IN_A_FOLDER in a folder;
#   - half of the files have at least LEAST_MEDIAN lines;
#   - less than MOST_CEREMONY percent of the lines are there only because a file is a file ('#pragma once', includes, namespaces);
#   - a header below SMALL_LINES lines serves three files outside of its folder. Otherwise it belongs into the file that uses it, or into a list below;
#   - so does a file of definitions (.ipp, .tpp) below SMALL_LINES lines;
#   - the rooms of layout/detail/, stage/detail/ and cuda/detail/ have an order: each includes only from itself and from the rooms before it.

cmake_minimum_required(VERSION 3.20)

if(NOT DEFINED MOST_FILES)
    set(MOST_FILES 452) # 420, 26 for offload, 4 for groups and codes, 12 less for merged ones, 8 for what trainers ask for, 1 for pieces, 1 for disks that ranks do not share, 2 for memory that processes share, 1 for kernels of whole parameters, and 1 for the mark of functions of kernels, which core needs as well
endif()
if(NOT DEFINED LEAST_MEDIAN)
    set(LEAST_MEDIAN 80)
endif()
if(NOT DEFINED MOST_CEREMONY)
    set(MOST_CEREMONY 15)
endif()
if(NOT DEFINED MOST_IN_A_FOLDER)
    set(MOST_IN_A_FOLDER 32)
endif()
if(NOT DEFINED SMALL_LINES)
    set(SMALL_LINES 60)
endif()
set(rooms_of_layout partition leases plan)
set(rooms_of_stage common memory gradients parameters optimizer decision state registration engine compose)
set(rooms_of_cuda runtime kernels nccl)

# Small, and apart for a reason: a header that needs another library or compiler (mpi, cub, config), that two layers or two headers without one another share,
# that a public header includes because it must stay light, or that makes a cycle where it is used.
set(small_headers
    comm/detail/loopback_instantiations.hpp core/detail/shared_function.hpp core/detail/timeline_clock.hpp
    cuda/detail/kernels/chunk.hpp cuda/detail/kernels/cub.cuh host/detail/random_bits_avx2.hpp host/detail/run_loop.hpp
    mpi/detail/mpi.hpp ops/detail/uncontracted.hpp policy/detail/require_scale.hpp stage/detail/engine/end_with_live_handles.hpp)
# Light, and included by programs: a part that a composition or a program names.
list(APPEND small_headers
    checkpoint/checkpoint.hpp checkpoint/consolidate.hpp comm/loopback_options.hpp comm/recording.hpp core/version.hpp
    cuda/capture_lock.hpp cuda/clean_up_error.hpp cuda/cuda_error.hpp cuda/nccl.cuh cuda/owned_stream.hpp cuda/queue_clock.hpp cuda/span_of.hpp
    host/delaying_queue.hpp launch/environment.hpp launch/launcher_error.hpp
    layout/dealt_group_partitioner.hpp layout/make_layout.hpp layout/per_tensor_partitioner.hpp layout/round_robin_partitioner.hpp
    layout/whole_group_partitioner.hpp mpi/session.hpp ops/integer_power.hpp policy/static_loss_scaler.hpp stage/declare_stage.hpp stage/offload.hpp stage/update_on_host.hpp stage/wire.hpp
    stage/with_stage.hpp tier/tier_error.hpp torch.hpp torch/process_group_communicator.hpp torch/process_group_options.hpp zero.hpp)
# Public, and shared by headers without one another.
list(APPEND small_headers
    backend/queue_clock.hpp # a template that cuda/ specialises
    layout/element_sizes.hpp # memory plan, communication model, shares of leases
    ops/symmetric_codes.hpp # codecs, and the host's loops
    stage/loss_scale.hpp # engine.hpp has no line left
    tier/file_calls.hpp # the tier, and offload_states; a test derives from it
    torch/paused.hpp) # both adapters
# Definitions that keep a header of the system out of programs that link compiled libraries.
set(small_definitions
    host/detail/instruction_set.ipp # <cpuid.h>, and the one choice of a process
    host/detail/queue.ipp # <thread>
    mpi/detail/session.ipp # <thread>, and the peers
    ops/detail/check_option.ipp) # <cstdio>, and the texts

set(failures 0)
function(complain text)
    message("${text}")
    math(EXPR failures "${failures} + 1")
    set(failures ${failures} PARENT_SCOPE)
endfunction()

set(base "${ROOT}/include/zero")
file(GLOB_RECURSE files RELATIVE "${base}" "${base}/*.hpp" "${base}/*.cuh" "${base}/*.ipp" "${base}/*.tpp")
set(all_lines 0)
set(ceremony 0)
set(sizes "")
set(folders "")
foreach(file IN LISTS files)
    file(READ "${base}/${file}" text)
    string(REGEX REPLACE "[^\n]" "" lines "${text}")
    string(LENGTH "${lines}" lines)
    set(lines_of_${file} ${lines})
    math(EXPR all_lines "${all_lines} + ${lines}")
    math(EXPR padded "1000000 + ${lines}")
    list(APPEND sizes ${padded})
    string(REGEX MATCHALL "\n(#pragma once|#include |namespace |} // namespace )" matches "\n${text}")
    list(LENGTH matches count)
    math(EXPR ceremony "${ceremony} + ${count}")
    cmake_path(GET file PARENT_PATH folder)
    list(APPEND folders "${folder}")
    math(EXPR files_in_${folder} "0${files_in_${folder}} + 1")
    string(REGEX MATCHALL "#[ \t]*include[ \t]*\"[^\"]+" includes "${text}")
    foreach(include IN LISTS includes)
        string(REGEX REPLACE ".*\"" "" used "${include}")
        if(NOT folder STREQUAL "")
            cmake_path(SET used NORMALIZE "${folder}/${used}")
        endif()
        cmake_path(GET used PARENT_PATH used_folder)
        if(NOT used_folder STREQUAL folder)
            list(APPEND users_of_${used} "${file}")
        endif()
        if("${folder} ${used}" MATCHES "^(layout|stage|cuda)/detail/?([^ ]*) (layout|stage|cuda)/detail/([^/]*)" AND CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_3)
            set(rooms "${rooms_of_${CMAKE_MATCH_1}}")
            set(room "${CMAKE_MATCH_2}")
            list(FIND rooms "${CMAKE_MATCH_4}" used_rank)
            list(FIND rooms "${room}" rank)
            if(rank LESS 0 OR used_rank LESS 0 OR used_rank GREATER rank)
                complain("${file}: includes ${used}, which is not in the room '${room}' or a room before it (order: ${rooms})")
            endif()
        endif()
    endforeach()
endforeach()

list(LENGTH files count)
if(count GREATER MOST_FILES)
    complain("include/zero has ${count} files, and may have ${MOST_FILES}")
endif()
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
    if(files_in_${folder} GREATER MOST_IN_A_FOLDER)
        complain("include/zero/${folder} has ${files_in_${folder}} files, and a folder has at most ${MOST_IN_A_FOLDER}")
    endif()
endforeach()
list(SORT sizes)
math(EXPR middle "${count} / 2")
list(GET sizes ${middle} median)
math(EXPR median "${median} - 1000000")
if(median LESS LEAST_MEDIAN)
    complain("half of the files have at most ${median} lines, and ${LEAST_MEDIAN} are wanted")
endif()
math(EXPR percent "100 * ${ceremony} / ${all_lines}")
if(NOT percent LESS MOST_CEREMONY)
    complain("${percent} percent of the lines are ceremony, and less than ${MOST_CEREMONY} are wanted")
endif()
foreach(file IN LISTS files)
    list(REMOVE_DUPLICATES users_of_${file})
    list(LENGTH users_of_${file} users)
    set(is_small FALSE)
    if(lines_of_${file} LESS SMALL_LINES AND (file MATCHES "\\.[it]pp$" OR users LESS 3))
        set(is_small TRUE)
    endif()
    if(is_small AND NOT file IN_LIST small_headers AND NOT file IN_LIST small_definitions)
        complain("${file}: has ${lines_of_${file}} lines and serves ${users} files outside of its folder; put it into the file that uses it")
    elseif(NOT is_small AND (file IN_LIST small_headers OR file IN_LIST small_definitions))
        complain("${file}: has ${lines_of_${file}} lines and serves ${users} files outside of its folder; take it out of the lists of small ones")
    endif()
endforeach()

if(failures GREATER 0)
    message(FATAL_ERROR "${failures} complaints about the house")
endif()
message("${count} files, ${all_lines} lines, median ${median}, ceremony ${percent} percent")
