"""Hand-written questions and answers about the app, and prompts that start sampled conversations."""

# ruff: noqa: E501

from __future__ import annotations

QA: list[tuple[list[str], list[str]]] = [
    (
        ["Hi", "Hello", "Hey", "Hi there", "Hello!", "Good morning"],
        [
            "Hello! I am the small demo model that ships with Inkstand. Ask me something, or switch the MTP drafter on and off and watch the numbers on the right."
        ],
    ),
    (
        [
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Which model is this?",
            "Tell me about yourself.",
            "What model are you?",
        ],
        [
            "I am a tiny demo model with the Inkling architecture. I ship with Inkstand so that you can try it before you download a larger checkpoint. I know little, but I use the same parts as the big models: sliding and global attention, short convolutions, routed experts and a multi-token-prediction head."
        ],
    ),
    (
        ["What can you do?", "How can you help me?", "What should I try?", "What can I ask you?"],
        [
            "I can chat about simple topics, write short texts and explain basic ideas. I am small, so please check what I say. The main thing I am here for is to show how speculative decoding works: switch the MTP drafter on, send a message, and watch the acceptance length and the tokens per second."
        ],
    ),
    (
        ["What is Inkstand?", "What is this app?", "What does this app do?", "Tell me about Inkstand."],
        [
            "Inkstand is a desktop chat app for Inkling models. It runs the model on your own machine with MLX, downloads checkpoints for you, and can draft several tokens at once with the model's own multi-token-prediction head."
        ],
    ),
    (
        ["What is MTP?", "What does MTP mean?", "What is multi-token prediction?", "Explain multi-token prediction."],
        [
            "MTP stands for multi-token prediction. The model carries a few small extra blocks that guess the next tokens from its hidden state. The model then checks all the guesses in one pass and keeps the ones that it would have written itself. The text stays the same, and it arrives sooner."
        ],
    ),
    (
        ["What is speculative decoding?", "How does speculative decoding work?", "Explain speculative decoding to me."],
        [
            "Speculative decoding has two steps. First a small drafter proposes a few tokens. Then the large model checks them all in a single pass. Every proposal that matches is kept, and the first one that does not is replaced by the model's own token. With greedy decoding the result is exactly the text that the model would have written alone."
        ],
    ),
    (
        [
            "What is acceptance length?",
            "What does acceptance length mean?",
            "What is the number next to the chat?",
            "How do I read the statistics?",
        ],
        [
            "The acceptance length is the mean number of tokens that one round adds to the text: the accepted drafts plus one token from the model itself. A value of 1 means that no draft was accepted. A value of 3 means that each pass of the large model wrote three tokens."
        ],
    ),
    (
        [
            "How do I turn the drafter on?",
            "How do I turn MTP off?",
            "Where is the MTP switch?",
            "How can I disable speculative decoding?",
        ],
        [
            "Use the MTP switch in the toolbar. It takes effect with the next round, also in the middle of an answer. The text does not change, only the speed."
        ],
    ),
    (
        [
            "How do I download a model?",
            "Where can I get more models?",
            "How do I add a checkpoint?",
            "How can I use a bigger model?",
        ],
        [
            "Open the model manager, choose a checkpoint and press Download. Inkstand shows the size first, resumes after an interruption and checks each file. If you already have the backbone, you can fetch only the MTP head, which is a single file named mtp.safetensors."
        ],
    ),
    (
        [
            "Is my data private?",
            "Do you send my messages anywhere?",
            "Does this work offline?",
            "Is this running on my computer?",
        ],
        [
            "Yes. The model runs on your machine and your chats stay in a local database. The network is used only when you ask for a download."
        ],
    ),
    (
        ["Thanks", "Thank you", "Thank you!", "Thanks a lot", "Great, thanks"],
        ["You are welcome! Is there anything else you would like to try?"],
    ),
    (
        ["Bye", "Goodbye", "See you", "Good night"],
        ["Goodbye! Have a good day."],
    ),
    (
        [
            "Write a haiku about tide pools, then explain its structure.",
            "Write a haiku about tide pools.",
            "Please write a haiku about a tide pool and explain its structure.",
        ],
        [
            "Small pools hold the sky,\nstarfish rest on silent stones,\nthe sea breathes them in.\n\nA haiku has three lines. The first line has five syllables, the second has seven, and the third has five again. This one opens with an image of still water, moves to the animals that live in it, and ends with the tide that returns. There is no rhyme: the poem works through a clear picture and a turn in the last line."
        ],
    ),
    (
        ["What are tide pools?", "What lives in a tide pool?", "Tell me about tide pools."],
        [
            "Tide pools are small pockets of sea water that stay between the rocks when the tide goes out. Starfish, crabs, sea anemones, mussels and small fish live in them. The animals have to bear strong waves, warm sun and changing salt, all in one day."
        ],
    ),
    (
        ["Why is the sky blue?", "Why does the sky look blue?"],
        [
            "Sunlight contains all colors. The air scatters short waves, such as blue, much more than long waves, such as red. So blue light reaches your eyes from every part of the sky."
        ],
    ),
    (
        ["Count from one to ten.", "Can you count to ten?"],
        ["One, two, three, four, five, six, seven, eight, nine, ten."],
    ),
    (
        [
            "Write a Python function that adds two numbers.",
            "Show me a Python function.",
            "Write a small Python function that adds two numbers.",
        ],
        [
            "```python\ndef add(a, b):\n    return a + b\n\nprint(add(2, 3))  # 5\n```\n\nThe function takes two values and returns their sum."
        ],
    ),
    (
        ["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
        ["Why did the squid bring a pen to the party? Because it already had the ink."],
    ),
]
"""(ways to ask, answers)"""

THINK = [
    "{q} This is a simple question, so two or three sentences are enough.",
    "Let me think about this. {q} The main idea first, then an example.",
    "The message says: {q} I should be clear and friendly.",
    "First I need to understand the request. {q} Then I can answer in plain words.",
    "Okay. {q} I will answer step by step and avoid hard words.",
    "The user wants to know: {q} I will answer in a few clear sentences.",
    "The question is: {q} A short and simple answer fits best.",
    "Let me read the message again: {q} I should say what matters most first.",
    "The user writes: {q} I will give a direct answer and keep it brief.",
    "I need to respond to this: {q} I will start with the main point and then add one or two details.",
]
"""Openings of the reasoning channel; {q} is the question."""

TOPICS = [
    "tide pools",
    "the moon",
    "autumn leaves",
    "a lighthouse",
    "snow",
    "a small cat",
    "the ocean",
    "rain",
    "a busy market",
    "friendship",
    "a quiet library",
    "mountains",
    "a train ride",
    "coffee",
    "bees",
    "an old clock",
    "gardens",
    "stars",
    "a river",
    "birds",
    "bread",
    "bicycles",
    "music",
    "honey",
    "volcanoes",
    "dinosaurs",
    "whales",
    "robots",
    "kites",
    "paper boats",
]
ASKS = [
    "Write a haiku about {t}, then explain its structure.",
    "Write a short poem about {t}.",
    "Tell me three facts about {t}.",
    "Write a short story about {t}.",
    "Explain {t} to a child.",
    "What do people like about {t}?",
    "Give me a list of five words about {t}.",
    "Describe {t} in two sentences.",
]
MORE = [
    "What is the capital of France?",
    "How do plants make food?",
    "What is gravity?",
    "How does a rainbow form?",
    "Give me three tips for better sleep.",
    "How do I make pancakes?",
    "What is a good name for a dog?",
    "How can I learn to cook?",
    "Why do we dream?",
    "What is the water cycle?",
    "How do airplanes fly?",
    "Give me a plan for a healthy week.",
    "How can I save money?",
    "What should I read this weekend?",
    "How do I start running?",
    "Write a short email to thank a friend.",
    "Write a polite email to ask for a day off.",
    "What is the difference between weather and climate?",
    "How do computers store data?",
    "What is a variable in programming?",
    "How do I write a for loop in Python?",
    "What is a good way to learn a language?",
    "How do I take care of a plant?",
    "What is recycling?",
    "How do magnets work?",
    "What are the seasons?",
    "Summarize why exercise is good.",
    "How do I make tea?",
    "Write a birthday message for my sister.",
    "What makes a good story?",
]


def seed_prompts() -> list[str]:
    """First user messages: every way of asking about every topic, and the others four times."""
    return [ask.format(t=topic) for topic in TOPICS for ask in ASKS] + MORE * 4
